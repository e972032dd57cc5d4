package pki

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"
)

// The headers of the first certificate of an authority that is being replaced, in the store only: one write changes the
// certificates, the step and its time.
const (
	headerStep  = "Step"
	headerSince = "Since"
)

// EncodeStep encodes the certificates of an authority that is being replaced, with the step and its time.
func EncodeStep(certs []*x509.Certificate, step string, since time.Time) []byte {
	first := pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: certs[0].Raw,
		Headers: map[string]string{headerStep: step, headerSince: stamp(since)}})
	return append(first, EncodeCertificates(certs[1:])...)
}

// ParseStep returns what EncodeStep has written; StepNone for certificates without a step.
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

// SplitPair returns the two blocks of a private key that a certificate follows.
func SplitPair(data []byte) (key, cert []byte, err error) {
	block, rest := pem.Decode(data)
	if block == nil || block.Type != blockKey {
		return nil, nil, fmt.Errorf("reading PEM: it does not begin with a block %q", blockKey)
	}
	return pem.EncodeToMemory(block), rest, nil
}
