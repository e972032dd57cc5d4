package template

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"math/big"
	"time"

	"go.yaml.in/yaml/v3"
)

//go:embed prices.yaml
var prices []byte

// Price is the price of one unit of a service in a region, with its source.
type Price struct {
	// Item is the key that cost.go looks up.
	Item string `yaml:"item" json:"item"`
	// Region is an AWS region, or "*" for every commercial one.
	Region string `yaml:"region" json:"region"`
	Unit   string `yaml:"unit" json:"unit"`
	// USD is a decimal number of US dollars.
	USD    string `yaml:"usd" json:"usd"`
	Source string `yaml:"source" json:"source"`
	// Read is the day on which the source showed the price.
	Read string `yaml:"read" json:"read"`
}

// Prices are the embedded prices. Each has the date on which it was read.
func Prices() ([]Price, error) { return ParsePrices(prices) }

// ParsePrices parses a list of prices strictly. The error has every problem that it finds.
func ParsePrices(data []byte) ([]Price, error) {
	var list []Price
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&list); err != nil {
		return nil, fmt.Errorf("reading the prices: %w", err)
	}
	var errs []error
	seen := map[string]bool{}
	for i, p := range list {
		key := p.Item + " " + p.Region
		_, number := new(big.Rat).SetString(p.USD)
		_, err := time.Parse(time.DateOnly, p.Read)
		switch {
		case p.Item == "" || p.Region == "" || p.Unit == "" || p.Source == "":
			errs = append(errs, fmt.Errorf("price %d: item, region, unit and source are needed", i+1))
		case !number || err != nil:
			errs = append(errs, fmt.Errorf("price %d (%s): %q dollars as read on %q are not a number and a date", i+1, key, p.USD, p.Read))
		case seen[key]:
			errs = append(errs, fmt.Errorf("price %d: %s is listed twice", i+1, key))
		}
		seen[key] = true
	}
	return list, errors.Join(errs...)
}

// find returns the price of an item in a region; nil if it is unknown.
func find(list []Price, item, region string) *Price {
	for _, r := range []string{region, "*"} {
		for i := range list {
			if list[i].Item == item && list[i].Region == r {
				return &list[i]
			}
		}
	}
	return nil
}
