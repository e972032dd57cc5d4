package sample

import "testing"

func TestPassed(t *testing.T) {
	if Passed(49) || !Passed(50) {
		t.Error("the limit is not 50")
	}
}

func TestLate(t *testing.T) {
	if Late(0) || !Late(100) {
		t.Error("late too soon or never")
	}
}

func TestSum(t *testing.T) {
	if got := Sum([]int{2, 3}); got != 5 {
		t.Errorf("the sum is %d", got)
	}
}

func TestRate(t *testing.T) {
	r, err := Rate("a", 3)
	if err != nil || r.Name != "a" {
		t.Errorf("the result is %v, %v", r, err)
	}
	if _, err := Rate("", 3); err == nil {
		t.Error("somebody without a name has a result")
	}
}
