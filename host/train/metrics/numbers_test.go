package metrics_test

import (
	"encoding/json"
	"encoding/json/jsontext"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/vfs"
)

func TestReadNumbers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "summary.json")
	if numbers, completed, err := metrics.ReadNumbers(vfs.At(path)); numbers != nil || completed || err != nil {
		t.Errorf("of no file: %v, %v, %v", numbers, completed, err)
	}
	s := metrics.Summary{Name: "Inf?", Completed: true, Steps: 7, ValLoss: metrics.Some(1.25), TrainLoss: metrics.Some(math.NaN()), ErrorRel: metrics.Some(math.Inf(-1))}
	if err := metrics.WriteSummary(vfs.At(path), s); err != nil {
		t.Fatal(err)
	}
	numbers, completed, err := metrics.ReadNumbers(vfs.At(path))
	if err != nil || !completed {
		t.Fatalf("%v, %v", completed, err)
	}
	want := map[string]float64{"steps": 7, "val_loss": 1.25, "train_loss": math.NaN(), "error_rel": math.Inf(-1)}
	for name := range numbers {
		if _, ok := want[name]; !ok {
			want[name] = 0
		}
	}
	if diff := cmp.Diff(want, numbers, cmpopts.EquateNaNs()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, named := numbers["name"]; named {
		t.Error("a name is no number")
	}
	put(t, path, []byte("{"))
	if _, _, err := metrics.ReadNumbers(vfs.At(path)); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("of half a file: %v", err)
	}
}

func TestLast(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	record := func(step string) string { return `{"step":` + step + `,"loss":2.5}` }
	long := strings.Repeat(record("3")+"\n", 10_000)
	// A record of many weights.
	wide := `{"step":5,"loss":2.5,"weights":{"w0":{"flip_rate":0.5,"dwell_mean":1}` + strings.Repeat(`,"w":{"flip_rate":0.5,"dwell_mean":1}`, 5000) + `}}`
	for _, c := range []struct {
		content string
		step    int
		ok      bool
	}{
		{"", 0, false},
		{record("1"), 0, false},
		{record("1") + "\n", 1, true},
		{record("1") + "\n" + record("2") + "\n", 2, true},
		{record("1") + "\n" + `{"step":2,"lo`, 1, true},
		{long + record("4") + "\n{", 4, true},
		{long + wide + "\n" + wide[:len(wide)-1], 5, true},
		{wide + "\n", 5, true},
		{wide, 0, false},
	} {
		put(t, path, []byte(c.content))
		r, ok, err := metrics.Last(vfs.At(path))
		if err != nil || ok != c.ok || r.Step != c.step || ok && r.Loss != 2.5 {
			t.Errorf("%.60q: %+v, %v, %v", c.content, r, ok, err)
		}
	}
	if _, ok, err := metrics.Last(vfs.At(path + ".none")); ok || err != nil {
		t.Errorf("of no file: %v, %v", ok, err)
	}
	put(t, path, []byte("nonsense\n"))
	if _, _, err := metrics.Last(vfs.At(path)); err == nil {
		t.Error("nonsense is accepted")
	}
}

func TestLastEvaluation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	evaluation := func(step string) string { return `{"step":` + step + `,"loss":2.5,"val_loss":3}` + "\n" }
	record := `{"step":9,"loss":2.5}` + "\n"
	for _, c := range []struct {
		content string
		step    int // 0 for none
	}{
		{"", 0},
		{record, 0},
		{evaluation("1") + evaluation("2") + record, 2},
		{evaluation("1") + evaluation("2")[:20], 1},
		{evaluation("1") + `{"step":2,"loss":1,"val_loss":"many"}` + "\n", 0},
		{evaluation("1") + strings.Repeat(record, 1000), 1},
		{evaluation("1") + strings.Repeat(record, 100_000), 0}, // too far from the end
		{`{"x":"` + strings.Repeat("x", 2<<20) + `","val_loss":3}` + "\n", 0},
	} {
		put(t, path, []byte(c.content))
		r, ok, err := metrics.LastEvaluation(vfs.At(path))
		if err != nil || ok != (c.step > 0) || ok && (r.Step != c.step || *r.ValLoss != 3) {
			t.Errorf("%.60q: %+v, %v, %v", c.content, r, ok, err)
		}
	}
	if _, ok, err := metrics.LastEvaluation(vfs.At(path + ".none")); ok || err != nil {
		t.Errorf("of no file: %v, %v", ok, err)
	}
}

// TestLabel: what is recorded as a number for curves has a name for people, and other names stay.
func TestLabel(t *testing.T) {
	rest := []string{"weights", "tensors", "applied_params", "diagnostics", "total_steps", "silence", "tokens", "steps", "parameters"}
	for _, of := range []reflect.Type{reflect.TypeFor[metrics.Record](), reflect.TypeFor[metrics.Summary]()} {
		for i := range of.NumField() {
			field := of.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			number := field.Type == reflect.TypeFor[metrics.Number]() || field.Type == reflect.TypeFor[*metrics.Number]() ||
				of == reflect.TypeFor[metrics.Summary]() && (field.Type.Kind() == reflect.Int || field.Type.Kind() == reflect.Int64 || field.Type.Kind() == reflect.Float64)
			if number && metrics.Label(name) == name && !slices.Contains(rest, name) {
				t.Errorf("%s: %s has no label", of, name)
			}
		}
	}
	if got := metrics.Label("hellaswag.acc_norm"); got != "hellaswag.acc_norm" {
		t.Errorf("an unknown name becomes %q", got)
	}
}

// numbersOf are those that a reader passes on.
func numbersOf(line []byte) (map[string]float64, bool) {
	out := map[string]float64{}
	var r metrics.NumberReader
	ok := r.Each(line, func(weight, name []byte, x float64) { out[string(weight)+"/"+string(name)] = x })
	return out, ok
}

func TestNumberReader(t *testing.T) {
	line := []byte(`{"step":3,"loss":2.5e-1,"lr":"NaN","weights":{"a.w":{"flip_rate":0.5,"dwell_mean":"Inf"}},"val_loss":-1}`)
	want := map[string]float64{"/step": 3, "/loss": 0.25, "/val_loss": -1, "a.w/flip_rate": 0.5}
	got, ok := numbersOf(line)
	if x := got["/lr"]; x == x || !(got["a.w/dwell_mean"] > 1e300) || !ok {
		t.Errorf("not finite: %v, %v", got, ok)
	}
	delete(got, "/lr")
	delete(got, "a.w/dwell_mean")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"", "{", "[1]", `{"a":1}x`, `{"a":01}`, `{"a":.5}`, "null", `"text"`} {
		if _, ok := numbersOf([]byte(bad)); ok {
			t.Errorf("%s is taken for a record", bad)
		}
	}
	for _, odd := range []string{`{ "a" : 1 }`, `{"a":1,"b":[1,2],"c":null,"d":"text","e":{"f":1}}`, `{"\u0061":1,"weights":true}`} {
		if got, ok := numbersOf([]byte(odd)); !ok || len(got) != 1 || got["/a"] != 1 {
			t.Errorf("%s: %v", odd, got)
		}
	}
}

// decodedNumbers are those that encoding/json finds.
func decodedNumbers(line []byte) (map[string]float64, bool) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(line, &fields) != nil || fields == nil {
		return nil, false
	}
	out := map[string]float64{}
	add := func(weight string, fields map[string]json.RawMessage) {
		for name, text := range fields {
			var n metrics.Number
			if json.Unmarshal(text, &n) == nil {
				out[weight+"/"+name] = float64(n)
			}
		}
	}
	add("", fields)
	var weights map[string]json.RawMessage
	_ = json.Unmarshal(fields["weights"], &weights)
	for weight, text := range weights {
		var fields map[string]json.RawMessage
		_ = json.Unmarshal(text, &fields)
		add(weight, fields)
	}
	return out, true
}

// FuzzNumbers: the numbers are those that encoding/json finds, unless a name stands twice.
func FuzzNumbers(f *testing.F) {
	f.Add([]byte(`{"step":3,"loss":2.5e-1,"lr":"NaN","weights":{"a.w":{"flip_rate":0.5}}}`))
	f.Add([]byte(`{"a":"Inf","a":-0,"b":{},"weights":{}}`))
	f.Add([]byte(`{"step":1e999,"loss":0x1}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		got, ok := numbersOf(line)
		want, wantOK := decodedNumbers(line)
		if ok != wantOK {
			t.Fatalf("%v, want %v", ok, wantOK)
		}
		if jsontext.Value(line).IsValid(jsontext.AllowInvalidUTF8(true)) && !cmp.Equal(want, got, cmpopts.EquateNaNs(), cmpopts.EquateEmpty()) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

func BenchmarkNumberReader(b *testing.B) {
	line := []byte(`{"step":96,"loss":2.8621225357055664,"lr":0.0028419792503595514,"lambda":0,"tokens":49152,"seconds":3.8725360209999997,"tokens_per_second":13739.474710363493,"grad_norm":0.7948459657769397,"error_norm2":1.2236216515302658,"error_rel":0.011065878961957343,"avg_err_norm":0.3340201621544746,"avg_corr_norm":0,"applied_params":0}`)
	b.SetBytes(int64(len(line)))
	var r metrics.NumberReader
	for b.Loop() {
		r.Each(line, func(_, _ []byte, _ float64) {})
	}
}
