package deployment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/shipped"
)

// ageWindow is how far back the age of the oldest message is looked for: SQS reports it each minute while a queue is
// active, with a delay.
const ageWindow = 10 * time.Minute

// twoQueues reads the queue and its dead-letter queue, found by the redrive policy.
func (r *Reader) twoQueues(ctx context.Context, f *doctor.Facts) (queue, dead doctor.Known[doctor.Queue]) {
	dead.Err = unread("the dead-letter queue", "the queue")
	url := f.Stack.Value.Resources[shipped.IDQueue].ID
	if url == "" {
		url = f.Settings.Value.Queue
	}
	if url == "" {
		queue.Err = unread("the queue", "the stack, or HARDTACK_QUEUE_URL in the function's environment")
		return queue, dead
	}
	queue = known(r.queue(ctx, url))
	if queue.Err != nil {
		return queue, dead
	}
	age, err := r.age(ctx, queue.Value.Name())
	queue.Value.Oldest = known(age, err)
	target := queue.Value.DeadLetterARN
	if target == "" {
		dead.Err = unread("the dead-letter queue", "a redrive policy")
		return queue, dead
	}
	return queue, known(r.queueOf(ctx, target))
}

// queueOf reads a queue by its ARN.
func (r *Reader) queueOf(ctx context.Context, arn string) (doctor.Queue, error) {
	place, err := doctor.PlaceOf(arn)
	if err != nil {
		return doctor.Queue{}, err
	}
	out, err := r.queues.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String(doctor.Queue{ARN: arn}.Name()), QueueOwnerAWSAccountId: &place.Account})
	if err != nil {
		return doctor.Queue{}, err
	}
	return r.queue(ctx, text(out.QueueUrl))
}

func (r *Reader) queue(ctx context.Context, url string) (q doctor.Queue, err error) {
	out, err := r.queues.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll}})
	if err != nil {
		return q, err
	}
	a := out.Attributes
	var errs []error
	number := func(name types.QueueAttributeName) int {
		n, err := strconv.Atoi(a[string(name)])
		if err != nil {
			errs = append(errs, fmt.Errorf("reading %s of %s: %q is no number", name, url, a[string(name)]))
		}
		return n
	}
	q = doctor.Queue{
		ARN: a["QueueArn"], Policy: a["Policy"],
		Queue: shipped.Queue{
			Visibility: seconds(number(types.QueueAttributeNameVisibilityTimeout)), Retention: seconds(number(types.QueueAttributeNameMessageRetentionPeriod)),
		},
		Visible: number(types.QueueAttributeNameApproximateNumberOfMessages), Flying: number(types.QueueAttributeNameApproximateNumberOfMessagesNotVisible),
		Later:     number(types.QueueAttributeNameApproximateNumberOfMessagesDelayed),
		Encrypted: a["SqsManagedSseEnabled"] == "true" || a["KmsMasterKeyId"] != "",
	}
	if text := a["RedrivePolicy"]; text != "" {
		var redrive struct {
			Target string `json:"deadLetterTargetArn"`
			Max    int    `json:"maxReceiveCount"`
		}
		if err := json.Unmarshal([]byte(text), &redrive); err != nil {
			errs = append(errs, fmt.Errorf("reading the redrive policy of %s: %w", url, err))
		}
		q.DeadLetterARN, q.MaxReceive = redrive.Target, redrive.Max
	}
	return q, errors.Join(errs...)
}

// age returns the age of the oldest message at the newest data point; nil if there is none in ageWindow.
func (r *Reader) age(ctx context.Context, queue string) (*time.Duration, error) {
	end := r.now()
	out, err := r.metrics.GetMetricStatistics(ctx, &cloudwatch.GetMetricStatisticsInput{
		Namespace: aws.String("AWS/SQS"), MetricName: aws.String("ApproximateAgeOfOldestMessage"), Period: aws.Int32(60),
		StartTime: aws.Time(end.Add(-ageWindow)), EndTime: &end, Statistics: []cwtypes.Statistic{cwtypes.StatisticMaximum},
		Dimensions: []cwtypes.Dimension{{Name: aws.String("QueueName"), Value: &queue}},
	})
	if err != nil {
		return nil, err
	}
	var newest time.Time
	var age *time.Duration
	for _, p := range out.Datapoints {
		if at := aws.ToTime(p.Timestamp); p.Maximum != nil && at.After(newest) {
			d := time.Duration(*p.Maximum * float64(time.Second))
			newest, age = at, &d
		}
	}
	return age, nil
}
