package schema_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/internal/schema"
)

type word string

func TestKey(t *testing.T) {
	var to struct {
		Count int
		Long  int64
		Ratio float64
		Word  word
		Names []string
		Path  []float64
		Maybe *int
		Share *float64
	}
	ratio := schema.Key{To: &to.Ratio, Is: schema.Below(0, 1)}
	for i, c := range []struct {
		key  schema.Key
		raw  any
		want any // nil: refused
	}{
		{schema.Key{To: &to.Count, Is: schema.From(1, 9)}, int64(9), int64(9)},
		{schema.Key{To: &to.Count, Is: schema.From(1, 9)}, int64(10), nil},
		{schema.Key{To: &to.Count}, 1.0, nil},
		{schema.Key{To: &to.Long, Is: schema.From(0, math.MaxInt64)}, int64(math.MaxInt64),
			int64(math.MaxInt64)},
		{ratio, int64(0), 0.0}, {ratio, 0.5, 0.5}, {ratio, 1.0, nil}, {ratio, math.NaN(), nil},
		{ratio, "0.5", nil},
		{schema.Key{To: &to.Ratio, Is: schema.Above(0, 1)}, 0.0, nil},
		{schema.Key{To: &to.Ratio, Is: schema.Above(0, 1)}, 1.0, 1.0},
		{schema.Key{To: &to.Word, Is: schema.OneOf(word("a"), "b")}, "b", "b"},
		{schema.Key{To: &to.Word, Is: schema.OneOf(word("a"), "b")}, "c", nil},
		{schema.Key{To: &to.Word, Is: schema.NonEmpty("", "none")}, "none", nil},
		{schema.Key{To: &to.Word, Is: schema.Hash()}, "ab", nil},
		{schema.Key{To: &to.Names, Is: schema.Patterns()}, "a*", []string{"a*"}},
		{schema.Key{To: &to.Names, Is: schema.Patterns()}, []any{"a", "b"}, []string{"a", "b"}},
		{schema.Key{To: &to.Names, Is: schema.Patterns()}, []any{}, nil},
		{schema.Key{To: &to.Names, Is: schema.OneOf("a")}, []any{"a", "b"}, nil},
		{schema.Key{To: &to.Names, Is: schema.Patterns()}, []any{"a", int64(1)}, nil},
		{schema.Key{To: &to.Path, Is: schema.Between(-1, 1)}, []any{int64(1), -0.5}, []float64{1, -0.5}},
		{schema.Key{To: &to.Path, Is: schema.Between(-1, 1)}, []any{2.0}, nil},
		{schema.Key{To: &to.Maybe, Is: schema.From(0, 9)}, int64(3), int64(3)},
		{schema.Key{To: &to.Share, Is: schema.Between(0, 9)}, int64(3), 3.0},
	} {
		v, ok := c.key.Accept(c.raw)
		if ok != (c.want != nil) {
			t.Errorf("%d: %v is accepted: %t", i, c.raw, ok)
		}
		if ok {
			c.key.Set(v)
			if diff := cmp.Diff(c.want, c.key.Value()); diff != "" {
				t.Errorf("%d: %v (-want +got):\n%s", i, c.raw, diff)
			}
		}
	}
	var nothing *int
	if v := (schema.Key{To: &nothing}).Value(); v != nil {
		t.Errorf("an absent key has the value %v", v)
	}
}

// TestSetCopies checks that Set copies a list, so that a change of the copy does not change the
// default.
func TestSetCopies(t *testing.T) {
	var list []string
	k := schema.Key{To: &list, Default: []string{"a"}}
	k.Set(k.Default)
	list[0] = "b"
	if diff := cmp.Diff([]string{"a"}, k.Default); diff != "" {
		t.Error(diff)
	}
}

func TestNearest(t *testing.T) {
	known := []string{"beta1", "beta2", "eps", "warmup", "accumulate"}
	for key, want := range map[string]string{
		"beta": "beta1", "Beta2": "beta2", "beta2 ": "beta2", "EPS": "eps", "ep": "eps", "x": "", "": "",
		"wramup": "warmup", "acumulat": "accumulate", "accumulated_steps": "", "decay": "",
		strings.Repeat("beta", 100): "",
	} {
		if got := schema.Nearest(key, known); got != want {
			t.Errorf("schema.Nearest(%q) = %q, want %q", key, got, want)
		}
	}
}

func ExampleKey_Wants() {
	var steps int
	var kind string
	fmt.Println(schema.Key{To: &steps, Is: schema.From(1, math.MaxInt64)}.Wants())
	fmt.Println(schema.Key{To: &kind, Is: schema.OneOf("cpu", "cuda")}.Wants())
	// Output:
	// an integer of at least 1
	// one of "cpu", "cuda"
}
