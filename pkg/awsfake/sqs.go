package awsfake

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"time"
)

// The modelled limits of SQS (Developer Guide, "Amazon SQS message quotas").
const (
	maxDelay      = 900         // seconds
	maxVisibility = 12 * 3600   // seconds
	maxMessage    = 1024 * 1024 // bytes
	maxReceive    = 10          // messages a call
)

// Message is one message of a queue.
type Message struct {
	ID, Body string
	// Receipt is that of the last reception; only it deletes the message.
	Receipt string
	Sent    time.Time
	// Visible is when the message can next be received.
	Visible time.Time
	// Received is the number of receptions, First the time of the first.
	Received int
	First    time.Time
}

// SQS is the account's queues, all of them standard queues. Several goroutines may call its exported methods, which
// are not API calls.
type SQS struct {
	account *Account
	queues  map[string]*queue
	serial  int
}

type queue struct {
	name, url  string
	attributes map[string]string
	messages   []*Message
}

func newSQS(a *Account) *SQS { return &SQS{account: a, queues: map[string]*queue{}} }

func (s *SQS) now() time.Time { return s.account.regional.agenda.now }

// queueDefaults are a new queue's attributes (API reference, SetQueueAttributes).
func queueDefaults() map[string]string {
	return map[string]string{
		"DelaySeconds": "0", "VisibilityTimeout": "30", "MessageRetentionPeriod": "345600",
		"ReceiveMessageWaitTimeSeconds": "0", "MaximumMessageSize": strconv.Itoa(maxMessage),
	}
}

// CreateQueue makes a queue and returns its URL; attributes are those of the API. A queue that exists with other
// attributes is the error QueueNameExists.
func (s *SQS) CreateQueue(name string, attributes map[string]string) (url string, err error) {
	s.account.locked(func() { url, err = s.create(name, attributes) })
	return url, err
}

func (s *SQS) create(name string, attributes map[string]string) (string, error) {
	url := "https://sqs." + HomeRegion + ".amazonaws.com/" + owner + "/" + name
	if q, ok := s.queues[url]; ok {
		for key, value := range attributes {
			if q.attributes[key] != value {
				return "", refuse("QueueNameExists", "A queue already exists with the same name and a different value for attribute %s", key)
			}
		}
		return url, nil
	}
	q := &queue{name: name, url: url, attributes: queueDefaults()}
	if err := q.set(attributes); err != nil {
		return "", err
	}
	s.queues[url] = q
	return url, nil
}

func (q *queue) arn() string { return "arn:aws:sqs:" + HomeRegion + ":" + owner + ":" + q.name }

// set changes attributes, or none where one is wrong.
func (q *queue) set(attributes map[string]string) error {
	limits := map[string]int{"DelaySeconds": maxDelay, "VisibilityTimeout": maxVisibility, "MessageRetentionPeriod": 14 * 24 * 3600, "ReceiveMessageWaitTimeSeconds": 20, "MaximumMessageSize": maxMessage}
	for _, key := range sortedKeys(attributes) {
		value := attributes[key]
		limit, number := limits[key]
		if number {
			if n, err := strconv.Atoi(value); err != nil || n < 0 || n > limit {
				return refuse("InvalidAttributeValue", "Invalid value for the parameter %s.", key)
			}
			continue
		}
		if key != "RedrivePolicy" {
			return refuse("InvalidAttributeName", "Unknown Attribute %s.", key)
		}
		if _, _, err := redrive(value); err != nil {
			return err
		}
	}
	for key, value := range attributes {
		q.attributes[key] = value
	}
	return nil
}

// redrive reads a RedrivePolicy; the count may be a number or a string, as in AWS's own examples.
func redrive(policy string) (arn string, count int, err error) {
	if policy == "" {
		return "", 0, nil
	}
	var p struct {
		Target string `json:"deadLetterTargetArn"`
		Count  any    `json:"maxReceiveCount"`
	}
	if err := json.Unmarshal([]byte(policy), &p); err == nil {
		switch n := p.Count.(type) {
		case float64:
			count = int(n)
		case string:
			count, _ = strconv.Atoi(n) // 0 is refused below
		}
	}
	if p.Target == "" || count < 1 || count > 1000 {
		return "", 0, refuse("InvalidParameterValue", "Value %s for parameter RedrivePolicy is invalid. Reason: it needs deadLetterTargetArn and a maxReceiveCount from 1 to 1000.", policy)
	}
	return p.Target, count, nil
}

// number is an attribute that set has checked.
func (q *queue) number(attribute string) int {
	n, _ := strconv.Atoi(q.attributes[attribute])
	return n
}

func (q *queue) seconds(attribute string) time.Duration {
	return time.Duration(q.number(attribute)) * time.Second
}

// Messages returns the messages of a queue, visible or not, the oldest first.
func (s *SQS) Messages(url string) (messages []Message) {
	s.account.locked(func() {
		if q, ok := s.queues[url]; ok {
			q.expire(s.now())
			for _, m := range q.messages {
				messages = append(messages, *m)
			}
		}
	})
	return messages
}

// put adds a message. Without the queue the message is lost, as with a rule's target.
func (s *SQS) put(url, body string, delay time.Duration) Message {
	q, ok := s.queues[url]
	if !ok {
		return Message{}
	}
	s.serial++
	m := &Message{ID: uuidOf("message", s.serial), Body: body, Sent: s.now(), Visible: s.now().Add(delay)}
	q.messages = append(q.messages, m)
	return *m
}

// receive returns up to count visible messages, and moves messages that were received as often as the policy allows to
// the dead-letter queue.
func (s *SQS) receive(q *queue, count int, visibility time.Duration) []Message {
	now := s.now()
	q.expire(now)
	arn, limit, _ := redrive(q.attributes["RedrivePolicy"]) // set has checked it
	ready := slices.Clone(q.messages)
	slices.SortStableFunc(ready, func(a, b *Message) int { return a.Visible.Compare(b.Visible) })
	var out []Message
	for _, m := range ready {
		if len(out) == count || m.Visible.After(now) {
			break
		}
		if dead := s.byARN(arn); dead != nil && m.Received >= limit {
			q.remove(m)
			m.Visible, m.Receipt = now, ""
			dead.messages = append(dead.messages, m)
			continue
		}
		if m.Received++; m.Received == 1 {
			m.First = now
		}
		m.Receipt = m.ID + "#" + strconv.Itoa(m.Received)
		m.Visible = now.Add(visibility)
		out = append(out, *m)
	}
	return out
}

func (s *SQS) byARN(arn string) *queue {
	for _, q := range s.queues {
		if arn != "" && q.arn() == arn {
			return q
		}
	}
	return nil
}

func (q *queue) remove(m *Message) {
	q.messages = slices.DeleteFunc(q.messages, func(other *Message) bool { return other == m })
}

// expire forgets messages beyond the retention period.
func (q *queue) expire(now time.Time) {
	limit := now.Add(-q.seconds("MessageRetentionPeriod"))
	q.messages = slices.DeleteFunc(q.messages, func(m *Message) bool { return m.Sent.Before(limit) })
}

// counts are the visible, the received and the delayed messages.
func (q *queue) counts(now time.Time) (visible, inFlight, delayed int) {
	for _, m := range q.messages {
		switch {
		case !m.Visible.After(now):
			visible++
		case m.Received > 0:
			inFlight++
		default:
			delayed++
		}
	}
	return visible, inFlight, delayed
}

// described are the attributes that GetQueueAttributes answers.
func (q *queue) described(now time.Time) map[string]string {
	visible, inFlight, delayed := q.counts(now)
	all := map[string]string{
		"QueueArn":                              q.arn(),
		"ApproximateNumberOfMessages":           strconv.Itoa(visible),
		"ApproximateNumberOfMessagesNotVisible": strconv.Itoa(inFlight),
		"ApproximateNumberOfMessagesDelayed":    strconv.Itoa(delayed),
	}
	for key, value := range q.attributes {
		all[key] = value
	}
	return all
}

// sortedQueues lists the queues by URL.
func (s *SQS) sortedQueues() []*queue {
	var list []*queue
	for _, q := range s.queues {
		list = append(list, q)
	}
	slices.SortFunc(list, func(a, b *queue) int { return cmp.Compare(a.url, b.url) })
	return list
}
