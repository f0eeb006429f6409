package sdk_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/sdk"
)

var full = sdk.Description{
	Name: "quest-2", Version: "1.0", Doc: "An example.",
	Claims: []sdk.Claim{
		{Name: sdk.ClaimTies},
		{Name: sdk.ClaimScaleScope, Value: sdk.ScopeTensor,
			When: map[string]any{"form": "official", "bits": 3}},
		{Name: sdk.ClaimScaleScope, Value: sdk.ScopeRow, When: map[string]any{"bits": 2}},
	},
	Parameters: []sdk.Parameter{
		sdk.Int("bits", 4, 2, 8, "bits per value"),
		sdk.Float("trust", 1, 0, math.Inf(1), "width of the mask"),
		sdk.Bool("rotate", true, "rotate first"),
		sdk.Choice("form", "paper", []string{"paper", "official"}, "which form"),
		sdk.String("table", "", "a name"),
	},
}

func TestCheckAccepts(t *testing.T) {
	if err := full.Check(); err != nil {
		t.Error(err)
	}
}

func TestCheckRefuses(t *testing.T) {
	with := func(p ...sdk.Parameter) sdk.Description {
		return sdk.Description{Name: "q", Parameters: p}
	}
	cases := []struct {
		name string
		d    sdk.Description
		says string
	}{
		{"no name", sdk.Description{}, `plugin name ""`},
		{"upper case", sdk.Description{Name: "QuEST"}, "use lower-case letters"},
		{"a digit first", sdk.Description{Name: "4bit"}, "starting with a letter"},
		{"a long name", sdk.Description{Name: strings.Repeat("a", 65)}, "plugin name"},
		{"a long version", sdk.Description{Name: "q", Version: strings.Repeat("1", 101)},
			"plugin q: got 101 bytes in its version, want at most 100"},
		{"a long doc", sdk.Description{Name: "q", Doc: strings.Repeat("a", 4097)},
			"plugin q: got 4097 bytes in its doc, want at most 4096"},
		{"many parameters", with(make([]sdk.Parameter, 257)...), "plugin q: got 257 parameters"},
		{"many claims", sdk.Description{Name: "q", Claims: make([]sdk.Claim, 257)},
			"plugin q: got 257 claims"},
		{"many choices", with(sdk.Choice("a", "b", slices.Repeat([]string{"b"}, 257), "")),
			"plugin q: parameter a: got 257 choices"},
		{"a long doc of a parameter", with(sdk.Bool("a", true, strings.Repeat("a", 1025))),
			"parameter a: got 1025 bytes in its doc"},
		{"a doc of two lines", with(sdk.Bool("a", true, "one\ntwo")),
			"parameter a: got 1 line breaks in its doc, want at most 0"},
		{"a parameter with a space", with(sdk.Bool("a b", true, "")), `parameter name "a b"`},
		{"a parameter twice", with(sdk.Bool("a", true, ""), sdk.Bool("a", true, "")),
			"parameter a: the name is used twice or reserved"},
		{"a name of the host", with(sdk.String("sha256", "", "")),
			"parameter sha256: the name is used twice or reserved"},
		{"a key of an optimizer's table", with(sdk.Int("refresh_delay", 0, 0, 9, "")),
			"parameter refresh_delay: the name is used twice or reserved"},
		{"a default out of range", with(sdk.Int("bits", 9, 2, 8, "")),
			"parameter bits: default: got 9, want an integer: 2 to 8"},
		{"a default of another type",
			with(sdk.Parameter{Name: "n", Type: sdk.TypeInt, Default: 0.5, Max: 1}), "default: got 0.5"},
		{"a default of another integer type",
			with(sdk.Parameter{Name: "n", Type: sdk.TypeInt, Default: int64(1), Max: 1}),
			"parameter n: default: got an int64, want an int"},
		{"no default", with(sdk.Parameter{Name: "n", Type: sdk.TypeBool}), "default: got <nil>"},
		{"no such choice", with(sdk.Choice("c", "x", []string{"y"}, "")), "want a string: y"},
		{"an empty range", with(sdk.Int("n", 0, 1, 0, "")), "the range from 1 to 0 is empty"},
		{"a range of NaN", with(sdk.Float("n", 0, math.NaN(), 1, "")),
			"the range from NaN to 1 is empty"},
		{"no such claim", sdk.Description{Name: "q", Claims: []sdk.Claim{{Name: "exact"}}},
			`claim exact: unknown claim: want one of ["idempotent"`},
		{"a claim without its value",
			sdk.Description{Name: "q", Claims: []sdk.Claim{{Name: sdk.ClaimScaleScope}}},
			"want one of [\"block\""},
		{"a claim with a wrong value",
			sdk.Description{Name: "q", Claims: []sdk.Claim{{Name: sdk.ClaimDescent, Value: math.NaN()}}},
			"want a float above 0"},
		{"a claim with a value",
			sdk.Description{Name: "q", Claims: []sdk.Claim{{Name: sdk.ClaimTies, Value: true}}},
			"claim ties: the field Value must be nil"},
		{"a claim for no parameter",
			sdk.Description{Name: "q",
				Claims: []sdk.Claim{{Name: sdk.ClaimTies, When: map[string]any{"a": 1}}}},
			"When names a, which is not a parameter"},
		{"a claim beyond the range",
			sdk.Description{Name: "q", Parameters: []sdk.Parameter{sdk.Int("a", 1, 0, 2, "")},
				Claims: []sdk.Claim{{Name: sdk.ClaimTies, When: map[string]any{"a": 3}}}}, "When: a: got 3"},
		{"a claim for another integer type",
			sdk.Description{Name: "q", Parameters: []sdk.Parameter{sdk.Int("a", 1, 0, 2, "")},
				Claims: []sdk.Claim{{Name: sdk.ClaimTies, When: map[string]any{"a": int64(1)}}}},
			"When: a: got an int64, want an int"},
		{"no such type", with(sdk.Parameter{Name: "n", Type: "complex", Default: 1}), "want a complex"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if err := c.d.Check(); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}

func TestRange(t *testing.T) {
	cases := map[string]sdk.Parameter{
		"2 to 8":          sdk.Int("p", 4, 2, 8, ""),
		"1 to 1048576":    sdk.Int("p", 4, 1, 1<<20, ""),
		"at least 0":      sdk.Float("p", 0, 0, math.Inf(1), ""),
		"at most 1":       sdk.Float("p", 0, math.Inf(-1), 1, ""),
		"any number":      sdk.Float("p", 0, math.Inf(-1), math.Inf(1), ""),
		"true or false":   sdk.Bool("p", true, ""),
		"paper, official": full.Parameters[3],
		"any string":      sdk.String("p", "", ""),
	}
	for want, p := range cases {
		if got := p.Range(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestConvert(t *testing.T) {
	bits, trust, rotate, form, table := full.Parameters[0], full.Parameters[1], full.Parameters[2],
		full.Parameters[3], full.Parameters[4]
	wide := sdk.Int("seed", 0, math.MinInt64, math.MaxInt64, "")
	cases := []struct {
		p    sdk.Parameter
		give any
		want any // nil means an error
	}{
		{bits, int64(3), 3}, {bits, 8, 8}, {bits, 9, nil}, {bits, 1, nil}, {bits, 4.0, nil},
		{bits, "4", nil}, {bits, nil, nil},
		{trust, int64(2), 2.0}, {trust, 0.5, 0.5}, {trust, -0.1, nil}, {trust, math.NaN(), nil},
		{trust, []float64{1}, nil},
		{rotate, false, false}, {rotate, 0, nil},
		{form, "official", "official"}, {form, "Paper", nil}, {form, 1, nil},
		{table, "anything", "anything"},
		{wide, int64(1<<53 + 1), 1<<53 + 1},
	}
	for _, c := range cases {
		got, err := c.p.Convert(c.give)
		if (c.want == nil) != (err != nil) || !cmp.Equal(got, c.want) {
			t.Errorf("%s: %v (%T) became %v (%T), %v; want %v", c.p.Name, c.give, c.give, got, got, err,
				c.want)
		}
	}
}

// TestConvertSays checks that the error shows the type of the value.
func TestConvertSays(t *testing.T) {
	for text, give := range map[string]any{"got 4.0, want an integer": 4.0, "got 0.5, want": 0.5,
		`got "4", want`: "4", "got true, want": true, "got NaN, want": math.NaN()} {
		if _, err := full.Parameters[0].Convert(give); err == nil ||
			!strings.HasPrefix(err.Error(), text) {
			t.Errorf("%#v: %v, want %q", give, err, text)
		}
	}
}

func TestResolve(t *testing.T) {
	values, err := full.Resolve(map[string]any{"bits": int64(2), "form": "official"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"bits": 2, "trust": 1.0, "rotate": true, "form": "official", "table": ""}
	if diff := cmp.Diff(want, values.Map()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if values.Int("bits") != 2 || values.Float("trust") != 1 || !values.Bool("rotate") ||
		values.Text("form") != "official" {
		t.Error("the getters disagree with the map")
	}
}

// TestResolveRefuses checks that every wrong setting is reported by name, in a fixed order.
func TestResolveRefuses(t *testing.T) {
	_, err := full.Resolve(map[string]any{"bits": 9, "bit": 4, "form": "x"})
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("got %v", err)
	}
	var names []string
	var known []bool
	for _, e := range joined.Unwrap() {
		p, ok := errors.AsType[*sdk.ParameterError](e)
		if !ok || p.Plugin != "quest-2" {
			t.Fatalf("got %v", e)
		}
		names, known = append(names, p.Name), append(known, p.Known)
	}
	if diff := cmp.Diff([]string{"bit", "bits", "form"}, names); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]bool{false, true, true}, known); diff != "" {
		t.Error(diff)
	}
	_, err = full.Resolve(map[string]any{"bits": 9})
	if p, ok := err.(*sdk.ParameterError); !ok ||
		p.Error() != "plugin quest-2: parameter bits: got 9, want an integer: 2 to 8" {
		t.Errorf("got %v", err)
	}
}

func TestDescriptionString(t *testing.T) {
	text := full.String()
	for _, want := range []string{"version 1.0\nAn example.\n", "bits", "2 to 8", "paper, official",
		"width of the mask"} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %q:\n%s", want, text)
		}
	}
	if got := (sdk.Description{Name: "sgd"}).String(); got != "no parameters\n" {
		t.Errorf("got %q", got)
	}
	if diff := cmp.Diff([]string{"bits", "trust", "rotate", "form", "table"},
		full.Names()); diff != "" {
		t.Error(diff)
	}
}

func TestValuesPanicOnMistakes(t *testing.T) {
	source := map[string]any{"bits": 4}
	values := sdk.NewValues(source)
	source["bits"] = 5
	if values.Int("bits") != 4 {
		t.Error("the values changed with the map they were made from")
	}
	values.Map()["bits"] = 6
	if values.Int("bits") != 4 {
		t.Error("the values changed with the map they gave away")
	}
	for want, read := range map[string]func(){
		`reads the parameter "beta", which it does not declare`: func() {
			values.Float("beta")
		},
		`reads the parameter "bits" as float64, but declares it as int`: func() {
			values.Float("bits")
		},
		`reads the parameter "x", which it does not declare`: func() {
			sdk.Values{}.Text("x")
		},
		`the plugin reads the parameter "bits" as string, but declares it as int`: func() {
			values.Text("bits")
		},
	} {
		func() {
			defer func() {
				if r, _ := recover().(string); !strings.Contains(r, want) {
					t.Errorf("panicked with %q, want %q", r, want)
				}
			}()
			read()
		}()
	}
}

// TestClaimed checks that the last claim whose conditions hold takes precedence.
func TestClaimed(t *testing.T) {
	for _, c := range []struct {
		given map[string]any
		want  any // of scale_scope; nil means not claimed
	}{
		{nil, nil}, {map[string]any{"bits": 3}, nil},
		{map[string]any{"bits": 3, "form": "official"}, sdk.ScopeTensor},
		{map[string]any{"bits": 2, "form": "official"}, sdk.ScopeRow},
	} {
		values, err := full.Resolve(c.given)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := full.Claimed(sdk.ClaimScaleScope, values); got != c.want || ok != (c.want != nil) {
			t.Errorf("%v: %v, %t, want %v", c.given, got, ok, c.want)
		}
		if _, ok := full.Claimed(sdk.ClaimTies, values); !ok {
			t.Errorf("%v: a claim without settings does not hold", c.given)
		}
	}
	if text := full.String(); !strings.Contains(text,
		"\nclaims scale_scope tensor where bits = 3 and form = \"official\"\n") {
		t.Error(text)
	}
}
