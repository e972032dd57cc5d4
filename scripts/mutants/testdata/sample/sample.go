// Package sample is for the tests of mutants: its own test notices some faults and not others.
package sample

import "errors"

// A Result is what somebody reached.
type Result struct {
	Name   string
	Points int
}

// Passed is tested on both sides of its limit.
func Passed(points int) bool { return points >= 50 }

// Late is tested far from its limit.
func Late(minutes int) bool {
	if minutes > 15 {
		return true
	}
	return false
}

// Sum is tested with two numbers.
func Sum(numbers []int) int {
	sum := 0
	for i := 0; i < len(numbers); {
		sum += numbers[i]
		i++
	}
	return sum
}

// Rate is tested for the name alone.
func Rate(name string, points int) (*Result, error) {
	if name == "" {
		return nil, errors.New("rating: no name")
	}
	return &Result{Name: name, Points: points}, nil
}

// Again is not tested.
func Again(f func() error) error {
	if err := f(); err != nil {
		return f()
	}
	return nil
}
