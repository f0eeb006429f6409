package pyrandom_test

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/pyrandom"
)

type goldenCase struct {
	Op        string
	Seed      int64
	Bits      int
	N, K      int
	Low, High int
	Values    []json.RawMessage
}

// TestGolden compares draws with those of CPython 3 and numpy in testdata/pyrandom.json.
func TestGolden(t *testing.T) {
	text, err := os.ReadFile("testdata/pyrandom.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []goldenCase }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) != 24 {
		t.Fatalf("the file has %d cases, want 24", len(file.Cases))
	}
	for i, c := range file.Cases {
		t.Run(fmt.Sprint(i, " ", c.Op), func(t *testing.T) {
			got := c.draw(t)
			for i, value := range c.Values {
				if want := c.value(t, value); !reflect.DeepEqual(got(i), want) {
					t.Fatalf("value %d is %v, want %v", i, got(i), want)
				}
			}
		})
	}
}

// draw makes all draws of a case in order, and returns a function for the i-th.
func (c goldenCase) draw(t *testing.T) func(i int) any {
	r := pyrandom.New(c.Seed)
	s := pyrandom.NewRandomState(uint32(c.Seed))
	list := make([]int, c.N)
	for i := range list {
		list[i] = i
	}
	one := map[string]func() any{
		"random":        func() any { return r.Random() },
		"getrandbits":   func() any { return r.GetRandBits(c.Bits).String() },
		"sample":        func() any { return r.Sample(c.N, c.K) },
		"randint":       func() any { return r.RandInt(c.Low, c.High) },
		"choice":        func() any { return pyrandom.Choice(r, list) },
		"numpy_randint": func() any { return s.RandInt(c.Low, c.High) },
	}[c.Op]
	switch {
	case c.Op == "shuffle":
		pyrandom.Shuffle(r, list)
	case c.Op == "choices":
		list = pyrandom.Choices(r, list, c.K)
	case one != nil:
		drawn := make([]any, len(c.Values))
		for i := range drawn {
			drawn[i] = one()
		}
		return func(i int) any { return drawn[i] }
	default:
		t.Fatalf("the test knows no operation %q", c.Op)
	}
	return func(i int) any { return list[i] }
}

// value parses a value of the file, in which wide numbers are in quotes.
func (c goldenCase) value(t *testing.T, raw json.RawMessage) any {
	text := strings.Trim(string(raw), `"`)
	var value any
	var err error
	switch c.Op {
	case "getrandbits":
		return text
	case "random":
		value, err = strconv.ParseFloat(text, 64)
	case "sample":
		var sample []int
		err = json.Unmarshal(raw, &sample)
		value = sample
	default:
		value, err = strconv.Atoi(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return value
}
