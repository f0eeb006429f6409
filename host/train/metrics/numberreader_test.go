package metrics_test

import (
	"encoding/json"
	"encoding/json/jsontext"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cage-qat/cage/host/train/metrics"
)

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
