package pki

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"time"
)

// The headers of the first certificate or public key of what is being replaced, in the store only: one write changes what is
// trusted, the step and its time.
const (
	headerStep  = "Step"
	headerSince = "Since"
)

// EncodeStep encodes the certificates or public keys of what is being replaced, each a PEM block, with the step and its
// time.
func EncodeStep(blocks [][]byte, step string, since time.Time) []byte {
	first, _ := pem.Decode(blocks[0])
	first.Headers = map[string]string{headerStep: step, headerSince: stamp(since)}
	return append(pem.EncodeToMemory(first), bytes.Join(blocks[1:], nil)...)
}

// ParseStep returns what EncodeStep has written; StepNone for blocks without a step.
func ParseStep(data []byte) (step string, since time.Time, err error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Headers[headerStep] == "" {
		return StepNone, time.Time{}, nil
	}
	step = block.Headers[headerStep]
	since, err = time.Parse(time.RFC3339, block.Headers[headerSince])
	if err != nil || step != StepAdded && step != StepUsed {
		return "", time.Time{}, fmt.Errorf("reading the step of a replacement: %q since %q is none", step, block.Headers[headerSince])
	}
	return step, since, nil
}

// SplitPair returns the two blocks of a private key that its certificate or public key follows.
func SplitPair(data []byte) (key, public []byte, err error) {
	block, rest := pem.Decode(data)
	if block == nil || block.Type != blockKey {
		return nil, nil, fmt.Errorf("reading PEM: it does not begin with a block %q", blockKey)
	}
	return pem.EncodeToMemory(block), rest, nil
}
