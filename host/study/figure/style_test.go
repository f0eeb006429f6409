package figure

import (
	"strings"
	"testing"
)

func TestTicks(t *testing.T) {
	tests := []struct {
		low, high float64
		want      string
	}{
		{0, 3000, "0 500 1000 1500 2000 2500 3000"},
		{0, 2, "0.0 0.5 1.0 1.5 2.0"},
		{-0.1, 2, "0.0 0.5 1.0 1.5 2.0"},
		{1.5, 2.74, "1.50 1.75 2.00 2.25 2.50"},
		{7.4, 12.2, "8 9 10 11 12"},
		{-3, 3, "−3 −2 −1 0 1 2 3"},
		{1, 15, "2.5 5.0 7.5 10.0 12.5 15.0"},
		{0, 95, "0 20 40 60 80"},
		{0, 55, "0 10 20 30 40 50"},
		{0.0101, 0.0102, "0.01010 0.01012 0.01014 0.01016 0.01018 0.01020"},
		{2.9000001, 2.9000004, "2.90000015 2.9000002 2.90000025 2.9000003 2.90000035 2.9000004"},
		{12345000, 12345005, "12345000 12345001 12345002 12345003 12345004 12345005"},
		{0, 6e8, "0 1e+08 2e+08 3e+08 4e+08 5e+08 6e+08"},
	}
	for _, test := range tests {
		var labels []string
		for _, tick := range (ticks{}).Ticks(test.low, test.high) {
			labels = append(labels, tick.Label)
			if tick.Value < test.low-1e-6*(test.high-test.low) || tick.Value > test.high+1e-6*(test.high-test.low) {
				t.Errorf("a mark at %v lies outside [%v, %v]", tick.Value, test.low, test.high)
			}
		}
		if got := strings.Join(labels, " "); got != test.want {
			t.Errorf("[%v, %v] is labelled %q, want %q", test.low, test.high, got, test.want)
		}
	}
	for _, tick := range (ticks{unlabelled: true}).Ticks(0, 10) {
		if strings.TrimSpace(tick.Label) != "" {
			t.Errorf("label %q on an axis without labels", tick.Label)
		}
	}
}
