package awsfake

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func (b *bench) queue(t *testing.T, name string, attributes map[string]string) *string {
	t.Helper()
	out, err := b.sqs.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err != nil {
		t.Fatalf("creating queue %s: %v", name, err)
	}
	return out.QueueUrl
}

func (b *bench) receive(t *testing.T, url *string) []types.Message {
	t.Helper()
	out, err := b.sqs.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: url, MaxNumberOfMessages: 10, WaitTimeSeconds: 20, MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"}})
	if err != nil {
		t.Fatalf("receiving: %v", err)
	}
	return out.Messages
}

func TestQueue(t *testing.T) {
	b := newBench(t, Options{})
	dead := b.queue(t, "dead", nil)
	url := b.queue(t, "pokes", map[string]string{
		"VisibilityTimeout": "60", "RedrivePolicy": `{"deadLetterTargetArn":"arn:aws:sqs:us-west-2:123456789012:dead","maxReceiveCount":2}`,
	})
	if _, err := b.sqs.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: url, MessageBody: aws.String("poke"), DelaySeconds: 10}); err != nil {
		t.Fatal(err)
	}
	if got := b.receive(t, url); len(got) != 0 {
		t.Fatalf("a delayed message was received: %v", got)
	}
	b.pass(10 * time.Second)
	for n := range 2 {
		got := b.receive(t, url)
		if len(got) != 1 || *got[0].Body != "poke" || got[0].Attributes["ApproximateReceiveCount"] != []string{"1", "2"}[n] {
			t.Fatalf("reception %d: %v", n+1, got)
		}
		if again := b.receive(t, url); len(again) != 0 {
			t.Fatalf("a message in flight was received: %v", again)
		}
		b.pass(time.Minute)
	}
	if got := b.receive(t, url); len(got) != 0 {
		t.Fatalf("a third reception: %v", got)
	}
	got := b.receive(t, dead)
	if len(got) != 1 || *got[0].Body != "poke" {
		t.Fatalf("the dead-letter queue has %v", got)
	}
	if _, err := b.sqs.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: dead, ReceiptHandle: got[0].ReceiptHandle}); err != nil {
		t.Fatal(err)
	}
	b.pass(time.Hour)
	if got := b.receive(t, dead); len(got) != 0 {
		t.Errorf("a deleted message was received: %v", got)
	}
}

func TestQueueCounts(t *testing.T) {
	b := newBench(t, Options{})
	url := b.queue(t, "pokes", nil)
	for _, delay := range []int32{0, 0, 5} {
		if _, err := b.sqs.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: url, MessageBody: aws.String("x"), DelaySeconds: delay}); err != nil {
			t.Fatal(err)
		}
	}
	one, err := b.sqs.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: url})
	if err != nil || len(one.Messages) != 1 {
		t.Fatalf("received %v, %v", one, err)
	}
	out, err := b.sqs.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: url, AttributeNames: []types.QueueAttributeName{"All"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"": "1", "NotVisible": "1", "Delayed": "1"} {
		if got := out.Attributes["ApproximateNumberOfMessages"+name]; got != want {
			t.Errorf("%s messages: %s, want %s", name, got, want)
		}
	}
	b.pass(time.Minute)
	if again := b.receive(t, url); len(again) != 3 {
		t.Errorf("%d messages are visible after a minute, want 3", len(again))
	}
	// The first receipt has been overtaken by a second reception: it deletes nothing.
	if _, err := b.sqs.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: one.Messages[0].ReceiptHandle}); err != nil {
		t.Fatal(err)
	}
	if n := len(b.account.SQS().Messages(*url)); n != 3 {
		t.Errorf("%d messages are left, want 3", n)
	}
}

func TestQueueErrors(t *testing.T) {
	b := newBench(t, Options{})
	url := b.queue(t, "pokes", nil)
	_, err := b.sqs.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: aws.String("https://sqs.us-west-2.amazonaws.com/1/none"), MessageBody: aws.String("x")})
	wantCode(t, err, "QueueDoesNotExist", "The specified queue does not exist.")
	_, err = b.sqs.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: url, MessageBody: aws.String("x"), DelaySeconds: 901})
	wantCode(t, err, "InvalidParameterValue", "")
	_, err = b.sqs.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: url, MaxNumberOfMessages: 11})
	wantCode(t, err, "InvalidParameterValue", "")
	_, err = b.sqs.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: aws.String("nonsense")})
	wantCode(t, err, "ReceiptHandleIsInvalid", "")
	_, err = b.sqs.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("bad"), Attributes: map[string]string{"RedrivePolicy": "{}"}})
	wantCode(t, err, "InvalidParameterValue", "")
}
