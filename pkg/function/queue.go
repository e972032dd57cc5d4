package function

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

// longestDelay is the most that SQS takes as a message's delay. A hook that is due later is found due
// later by the call that then happens, which sends the next reminder.
const longestDelay = 15 * time.Minute

// sender is what is used of sqs.Client.
type sender interface {
	SendMessage(context.Context, *sqs.SendMessageInput, ...func(*sqs.Options)) (*sqs.SendMessageOutput, error)
}

// queue sends reminders to the queue that the function reads.
type queue struct {
	client sender
	url    string
}

// Remind sends a message that is delivered after the delay, in whole seconds and rounded up.
func (q queue) Remind(ctx context.Context, cluster string, after time.Duration) error {
	body, err := json.Marshal(event{Source: sourceReminder, DetailType: detailReminder, Detail: detail{Cluster: cluster}})
	if err != nil {
		return fmt.Errorf("encoding a reminder for %s: %w", cluster, err)
	}
	seconds := math.Ceil(min(max(after, 0), longestDelay).Seconds())
	_, err = q.client.SendMessage(ctx, &sqs.SendMessageInput{
		QueueUrl: &q.url, MessageBody: aws.String(string(body)), DelaySeconds: int32(seconds),
	})
	if err != nil {
		return fmt.Errorf("sending a reminder for %s to %s: %w", cluster, q.url, err)
	}
	return nil
}
