package config

import (
	"fmt"
	"math"
	"regexp"
	"slices"
)

// rule is the range of a key: check a value of the right type, and say in
// words what is right.
type rule struct {
	ok      func(v any) bool
	words   string   // after the type: "of at least 1"
	choices []string // of a text that is one of a few
}

// from is the range of an integer, both ends included.
func from(low, high int64) rule {
	words := fmt.Sprintf("from %d to %d", low, high)
	if high == math.MaxInt64 {
		words = fmt.Sprintf("of at least %d", low)
	}
	return rule{words: words, ok: func(v any) bool { return v.(int64) >= low && v.(int64) <= high }}
}

// between is the range of a number, both ends included.
func between(low, high float64) rule {
	return rule{words: "from " + decimal(low) + " to " + decimal(high),
		ok: func(v any) bool { return v.(float64) >= low && v.(float64) <= high }}
}

// below is the range of a number, the upper end excluded.
func below(low, high float64) rule {
	return rule{words: "of at least " + decimal(low) + " and below " + decimal(high),
		ok: func(v any) bool { return v.(float64) >= low && v.(float64) < high }}
}

// above is the range of a number, the lower end excluded.
func above(low, high float64) rule {
	return rule{words: "above " + decimal(low) + ", up to " + decimal(high),
		ok: func(v any) bool { return v.(float64) > low && v.(float64) <= high }}
}

// positive is the range of an array of numbers that are up to 1e12.
func positive() rule {
	return rule{words: "above 0, up to 1e+12",
		ok: func(v any) bool { return slices.Min(v.([]float64)) > 0 && slices.Max(v.([]float64)) <= 1e12 }}
}

// numbersWithin is the range of an array of numbers of at most that magnitude.
func numbersWithin(most float64) rule {
	return rule{words: "from " + decimal(-most) + " to " + decimal(most),
		ok: func(v any) bool { return slices.Min(v.([]float64)) >= -most && slices.Max(v.([]float64)) <= most }}
}

func oneOf(choices ...string) rule {
	return rule{choices: choices, ok: func(v any) bool { return slices.Contains(choices, v.(string)) }}
}

func anything(words string) rule { return rule{words: words} }

func nonEmpty(words string) rule {
	return rule{words: words, ok: func(v any) bool { return v.(string) != "" }}
}

var hexHash = regexp.MustCompile(`^([0-9a-f]{64})?$`)

func hash() rule {
	return rule{words: "of 64 hexadecimal digits in lower case, or empty",
		ok: func(v any) bool { return hexHash.MatchString(v.(string)) }}
}
