package schema

import (
	"fmt"
	"math"
	"regexp"
	"slices"
)

// Most is the upper bound of counts that have no natural one.
const Most = 1_000_000_000

// Range is the set of values that a key accepts. Its zero value accepts everything.
type Range struct {
	Words []string // all possible strings; nil: there is no such list
	text  string   // in words, after the type: "of at least 1"
	holds func(value any) bool
}

// From returns the range from low to high, inclusive, for an integer or for each integer of an array.
func From(low, high int64) Range {
	text := fmt.Sprintf("from %d to %d", low, high)
	if high == math.MaxInt64 {
		text = fmt.Sprintf("of at least %d", low)
	}
	holds := func(n int64) bool { return n >= low && n <= high }
	return Range{text: text, holds: func(v any) bool {
		if n, one := v.(int64); one {
			return holds(n)
		}
		list := v.([]int)
		return len(list) > 0 && !slices.ContainsFunc(list, func(n int) bool { return !holds(int64(n)) })
	}}
}

// Between returns the range from low to high, inclusive, for a number or for each number
// of an array.
func Between(low, high float64) Range {
	return numbers("from "+Decimal(low)+" to "+Decimal(high), func(x float64) bool { return x >= low && x <= high })
}

// Below is [Between] with the upper end excluded.
func Below(low, high float64) Range {
	return numbers("of at least "+Decimal(low)+" and below "+Decimal(high), func(x float64) bool { return x >= low && x < high })
}

// Above is [Between] with the lower end excluded.
func Above(low, high float64) Range {
	return numbers("above "+Decimal(low)+", up to "+Decimal(high), func(x float64) bool { return x > low && x <= high })
}

// numbers is the range of a number or of each in an array, which must not be empty.
func numbers(text string, holds func(float64) bool) Range {
	return Range{text: text, holds: func(v any) bool {
		if x, one := v.(float64); one {
			return holds(x)
		}
		list := v.([]float64)
		return len(list) > 0 && !slices.ContainsFunc(list, func(x float64) bool { return !holds(x) })
	}}
}

// OneOf returns the range of strings, or of arrays of strings, each of which is one of
// the given words.
func OneOf[T ~string](words ...T) Range {
	r := Range{}
	for _, w := range words {
		r.Words = append(r.Words, string(w))
	}
	r.holds = func(v any) bool {
		if s, one := v.(string); one {
			return slices.Contains(r.Words, s)
		}
		list := v.([]string)
		return len(list) > 0 && !slices.ContainsFunc(list, func(s string) bool { return !slices.Contains(r.Words, s) })
	}
	return r
}

// Anything returns the range of all strings; text says what they mean, as in "that names
// a directory".
func Anything(text string) Range { return Range{text: text} }

// NonEmpty returns the range of all strings except the empty one and those listed.
func NonEmpty(text string, but ...string) Range {
	return Range{text: text, holds: func(v any) bool { return v.(string) != "" && !slices.Contains(but, v.(string)) }}
}

// Paths returns the range of one or several paths.
func Paths(text string) Range {
	paths := Patterns()
	paths.text = text
	return paths
}

// Patterns returns the range of one or several patterns of names.
func Patterns() Range {
	return Range{text: "of at least one character each", holds: func(v any) bool {
		return len(v.([]string)) > 0 && !slices.Contains(v.([]string), "")
	}}
}

// Matching returns the range of strings that fit a pattern; text says what they mean.
func Matching(text string, pattern *regexp.Regexp) Range {
	return Range{text: text, holds: func(v any) bool { return pattern.MatchString(v.(string)) }}
}

var hexHash = regexp.MustCompile(`^([0-9a-f]{64})?$`)

// Hash returns the range of SHA-256 hashes and the empty string.
func Hash() Range {
	return Matching("of 64 hexadecimal digits in lower case, or empty", hexHash)
}
