package awsfake

import (
	"crypto/md5" //nolint:gosec // the protocol's checksum
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// serve carries out one call of SQS's JSON protocol. WaitTimeSeconds is accepted, but an answer
// never waits: a poll that finds nothing is answered at once.
func (s *SQS) serve(c *call) (any, error) {
	if c.Action == "ListQueues" {
		return s.listQueues(c.Body)
	}
	if c.Action == "CreateQueue" {
		return s.createQueue(c.Body)
	}
	if c.Action == "GetQueueUrl" {
		return s.getQueueURL(c.Body)
	}
	do, ok := s.actions()[c.Action]
	if !ok {
		return nil, refuse("UnsupportedOperation", "awsfake does not model sqs:%s", c.Action)
	}
	var in struct{ QueueUrl string }
	if err := decode(c.Body, &in); err != nil {
		return nil, err
	}
	q, ok := s.queues[in.QueueUrl]
	if !ok {
		return nil, noQueue()
	}
	return do(q, c.Body)
}

// actions are the calls about a queue.
func (s *SQS) actions() map[string]func(*queue, []byte) (any, error) {
	return map[string]func(*queue, []byte) (any, error){
		"SendMessage": s.sendMessage, "ReceiveMessage": s.receiveMessage, "DeleteMessage": s.deleteMessage,
		"GetQueueAttributes": s.getAttributes, "SetQueueAttributes": s.setAttributes,
	}
}

func noQueue() error { return refuse("QueueDoesNotExist", "The specified queue does not exist.") }

func decode(body []byte, v any) error {
	if err := json.Unmarshal(body, v); err != nil {
		return refuse("SerializationException", "reading the request: %v", err)
	}
	return nil
}

func sum(body string) string {
	digest := md5.Sum([]byte(body)) //nolint:gosec // the protocol's checksum
	return hex.EncodeToString(digest[:])
}

type none struct{}

func (s *SQS) createQueue(body []byte) (any, error) {
	var in struct {
		QueueName  string
		Attributes map[string]string
	}
	if err := decode(body, &in); err != nil {
		return nil, err
	}
	url, err := s.create(in.QueueName, in.Attributes)
	if err != nil {
		return nil, err
	}
	return map[string]string{"QueueUrl": url}, nil
}

func (s *SQS) getQueueURL(body []byte) (any, error) {
	var in struct{ QueueName string }
	if err := decode(body, &in); err != nil {
		return nil, err
	}
	for _, q := range s.queues {
		if q.name == in.QueueName {
			return map[string]string{"QueueUrl": q.url}, nil
		}
	}
	return nil, noQueue()
}

func (s *SQS) listQueues(body []byte) (any, error) {
	var in struct{ QueueNamePrefix string }
	if err := decode(body, &in); err != nil {
		return nil, err
	}
	urls := []string{}
	for _, q := range s.sortedQueues() {
		if strings.HasPrefix(q.name, in.QueueNamePrefix) {
			urls = append(urls, q.url)
		}
	}
	return map[string][]string{"QueueUrls": urls}, nil
}

type sendEntry struct {
	MessageBody  string
	DelaySeconds *int
}

type sent struct {
	MessageID string `json:"MessageId"`
	MD5       string `json:"MD5OfMessageBody"`
}

func (s *SQS) send(q *queue, in sendEntry) (sent, error) {
	delay := q.number("DelaySeconds")
	if in.DelaySeconds != nil {
		delay = *in.DelaySeconds
	}
	switch limit := q.number("MaximumMessageSize"); {
	case delay < 0 || delay > maxDelay:
		return sent{}, refuse("InvalidParameterValue", "Value %d for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and <= %d.", delay, maxDelay)
	case in.MessageBody == "":
		return sent{}, refuse("MissingParameter", "The request must contain the parameter MessageBody.")
	case len(in.MessageBody) > limit:
		return sent{}, refuse("InvalidParameterValue", "One or more parameters are invalid. Reason: Message must be shorter than %d bytes.", limit)
	}
	m := s.put(q.url, in.MessageBody, time.Duration(delay)*time.Second)
	return sent{m.ID, sum(in.MessageBody)}, nil
}

func (s *SQS) sendMessage(q *queue, body []byte) (any, error) {
	var in sendEntry
	if err := decode(body, &in); err != nil {
		return nil, err
	}
	return s.send(q, in)
}

type received struct {
	MessageID     string            `json:"MessageId"`
	ReceiptHandle string            `json:"ReceiptHandle"`
	MD5OfBody     string            `json:"MD5OfBody"`
	Body          string            `json:"Body"`
	Attributes    map[string]string `json:"Attributes,omitempty"`
}

func (s *SQS) receiveMessage(q *queue, body []byte) (any, error) {
	var in struct {
		MaxNumberOfMessages         *int
		VisibilityTimeout           *int
		AttributeNames              []string
		MessageSystemAttributeNames []string
	}
	if err := decode(body, &in); err != nil {
		return nil, err
	}
	count, visibility := 1, q.number("VisibilityTimeout")
	if in.MaxNumberOfMessages != nil {
		count = *in.MaxNumberOfMessages
	}
	if in.VisibilityTimeout != nil {
		visibility = *in.VisibilityTimeout
	}
	if count < 1 || count > maxReceive {
		return nil, refuse("InvalidParameterValue", "Value %d for parameter MaxNumberOfMessages is invalid. Reason: Must be between 1 and %d, if provided.", count, maxReceive)
	}
	if visibility < 0 || visibility > maxVisibility {
		return nil, refuse("InvalidParameterValue", "Value %d for parameter VisibilityTimeout is invalid. Reason: VisibilityTimeout must be an integer between 0 and %d.", visibility, maxVisibility)
	}
	names := append(in.AttributeNames, in.MessageSystemAttributeNames...)
	messages := []received{}
	for _, m := range s.receive(q, count, time.Duration(visibility)*time.Second) {
		messages = append(messages, received{m.ID, m.Receipt, sum(m.Body), m.Body, m.system(names)})
	}
	if len(messages) == 0 {
		return none{}, nil
	}
	return map[string][]received{"Messages": messages}, nil
}

// system are the system attributes that were asked for.
func (m Message) system(names []string) map[string]string {
	attributes := map[string]string{}
	for key, value := range map[string]string{
		"ApproximateReceiveCount": strconv.Itoa(m.Received), "SentTimestamp": millis(m.Sent),
		"ApproximateFirstReceiveTimestamp": millis(m.First), "SenderId": owner,
	} {
		if slices.Contains(names, "All") || slices.Contains(names, key) {
			attributes[key] = value
		}
	}
	return attributes
}

func millis(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }

// deleteMessage deletes by receipt. An old receipt, of a message that was received again since, may be
// accepted without effect, according to the API reference; awsfake does so.
func (s *SQS) deleteMessage(q *queue, body []byte) (any, error) {
	var in struct{ ReceiptHandle string }
	if err := decode(body, &in); err != nil {
		return nil, err
	}
	if !strings.Contains(in.ReceiptHandle, "#") {
		return nil, refuse("ReceiptHandleIsInvalid", "The input receipt handle \"%s\" is not a valid receipt handle.", in.ReceiptHandle)
	}
	q.messages = slices.DeleteFunc(q.messages, func(m *Message) bool { return m.Receipt == in.ReceiptHandle })
	return none{}, nil
}

func (s *SQS) getAttributes(q *queue, body []byte) (any, error) {
	var in struct{ AttributeNames []string }
	if err := decode(body, &in); err != nil {
		return nil, err
	}
	q.expire(s.now())
	all, out := q.described(s.now()), map[string]string{}
	for _, name := range in.AttributeNames {
		if name == "All" {
			return map[string]any{"Attributes": all}, nil
		}
		if value, ok := all[name]; ok {
			out[name] = value
		} else if name != "RedrivePolicy" {
			return nil, refuse("InvalidAttributeName", "Unknown Attribute %s.", name)
		}
	}
	return map[string]any{"Attributes": out}, nil
}

func (s *SQS) setAttributes(q *queue, body []byte) (any, error) {
	var in struct{ Attributes map[string]string }
	if err := decode(body, &in); err != nil {
		return nil, err
	}
	if err := q.set(in.Attributes); err != nil {
		return nil, err
	}
	return none{}, nil
}
