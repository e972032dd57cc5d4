package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

const (
	messagesOnce = 10 // the most messages of one ReceiveMessage
	// pollEvery replaces SQS's long polling, which the fake does not have.
	pollEvery = 250 * time.Millisecond
)

// queueAPI is the part of SQS's client that a trigger needs.
type queueAPI interface {
	ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, opts ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
	DeleteMessage(ctx context.Context, in *sqs.DeleteMessageInput, opts ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error)
	SendMessage(ctx context.Context, in *sqs.SendMessageInput, opts ...func(*sqs.Options)) (*sqs.SendMessageOutput, error)
}

// invoker is the function's handler.
type invoker interface {
	Invoke(ctx context.Context, payload []byte) ([]byte, error)
}

// trigger does the work of Lambda and EventBridge for the function: it reads the queue in batches, invokes the handler
// with each, deletes the messages that have not failed, and sends the scheduled event.
type trigger struct {
	queue   queueAPI
	url     string
	handler invoker
	// The template's figures: batch is the maximum of messages in one call, window the time to wait for more of them,
	// timeout bounds the call, and every is the interval of the scheduled event.
	batch                  int
	window, timeout, every time.Duration
	now                    func() time.Time
	// called is called after every invocation. stale, unless nil, reports that another function is to be made.
	called func()
	stale  func() bool
	log    *slog.Logger
}

// run works until ctx ends or it is stale.
func (t *trigger) run(ctx context.Context) {
	sweep, poll := time.NewTicker(t.every), time.NewTicker(pollEvery)
	defer sweep.Stop()
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-sweep.C:
			if err := t.schedule(ctx); err != nil && ctx.Err() == nil {
				t.log.Warn("the schedule's event was not sent", "error", err)
			}
		case <-poll.C:
			if t.stale != nil && t.stale() {
				return
			}
			if err := t.invokeBatch(ctx); err != nil && ctx.Err() == nil {
				t.log.Warn("the function was not invoked, or not wholly", "error", err)
			}
		}
	}
}

// schedule sends the scheduled event of EventBridge.
func (t *trigger) schedule(ctx context.Context) error {
	body, err := json.Marshal(map[string]any{
		"version": "0", "source": "aws.events", "detail-type": "Scheduled Event",
		"time": t.now().UTC().Format(time.RFC3339), "detail": map[string]any{},
	})
	if err != nil {
		return fmt.Errorf("encoding the schedule's event: %w", err)
	}
	_, err = t.queue.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: &t.url, MessageBody: aws.String(string(body))})
	return err
}

// invokeBatch invokes the handler with the messages in the queue, if there are any.
func (t *trigger) invokeBatch(ctx context.Context) error {
	first, err := t.receive(ctx, nil)
	if err != nil || len(first) == 0 {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(t.window):
	}
	batch, err := t.receive(ctx, first)
	if err != nil {
		return err
	}
	payload, err := json.Marshal(records(batch))
	if err != nil {
		return fmt.Errorf("encoding a batch: %w", err)
	}
	call, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	answer, err := t.handler.Invoke(call, payload)
	t.called()
	if err != nil {
		return fmt.Errorf("invoking the function: %w", err)
	}
	var out events.SQSEventResponse
	if err := json.Unmarshal(answer, &out); err != nil {
		return fmt.Errorf("reading the function's answer: %w", err)
	}
	failed := map[string]bool{}
	for _, f := range out.BatchItemFailures {
		failed[f.ItemIdentifier] = true
	}
	for _, m := range batch {
		if failed[aws.ToString(m.MessageId)] {
			continue // it comes back when its visibility timeout is over
		}
		if _, err := t.queue.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &t.url, ReceiptHandle: m.ReceiptHandle}); err != nil {
			return fmt.Errorf("deleting a message: %w", err)
		}
	}
	return nil
}

// receive fills a batch from the queue.
func (t *trigger) receive(ctx context.Context, batch []types.Message) ([]types.Message, error) {
	for len(batch) < t.batch {
		out, err := t.queue.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: &t.url, MaxNumberOfMessages: messagesOnce,
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameApproximateReceiveCount},
		})
		if err != nil {
			return batch, fmt.Errorf("reading the queue: %w", err)
		}
		if len(out.Messages) == 0 {
			return batch, nil
		}
		batch = append(batch, out.Messages...)
	}
	return batch, nil
}

// records converts messages to the event that Lambda passes to a handler.
func records(batch []types.Message) events.SQSEvent {
	var e events.SQSEvent
	for _, m := range batch {
		e.Records = append(e.Records, events.SQSMessage{
			MessageId: aws.ToString(m.MessageId), ReceiptHandle: aws.ToString(m.ReceiptHandle), Body: aws.ToString(m.Body),
			Attributes: m.Attributes, EventSource: "aws:sqs",
		})
	}
	return e
}
