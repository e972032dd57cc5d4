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

// longestDelay is SQS's maximum delay. For a hook that is due later, the call at that time sends the next reminder.
const longestDelay = 15 * time.Minute

// sender is the part of sqs.Client that is used.
type sender interface {
	SendMessage(context.Context, *sqs.SendMessageInput, ...func(*sqs.Options)) (*sqs.SendMessageOutput, error)
}

// queue sends reminders to the function's own queue.
type queue struct {
	client sender
	url    string
}

// Remind sends a message that is delivered after the delay, rounded up to seconds.
func (q queue) Remind(ctx context.Context, cluster string, after time.Duration) error {
	// Of texts alone: it cannot fail.
	body, _ := json.Marshal(event{Source: sourceReminder, DetailType: detailReminder, Detail: detail{Cluster: cluster}})
	seconds := math.Ceil(min(max(after, 0), longestDelay).Seconds())
	_, err := q.client.SendMessage(ctx, &sqs.SendMessageInput{
		QueueUrl: &q.url, MessageBody: aws.String(string(body)), DelaySeconds: int32(seconds),
	})
	if err != nil {
		return fmt.Errorf("sending a reminder for %s to %s: %w", cluster, q.url, err)
	}
	return nil
}
