package metrics_test

import (
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
	if numbers, completed, err := metrics.ReadNumbers(vfs.At(path)); numbers != nil || completed ||
		err != nil {
		t.Errorf("of no file: %v, %v, %v", numbers, completed, err)
	}
	s := metrics.Summary{Name: "Inf?", Completed: true, Steps: 7, ValLoss: metrics.Some(1.25),
		TrainLoss: metrics.Some(math.NaN()), ErrorRel: metrics.Some(math.Inf(-1))}
	if err := metrics.WriteSummary(vfs.At(path), s); err != nil {
		t.Fatal(err)
	}
	numbers, completed, err := metrics.ReadNumbers(vfs.At(path))
	if err != nil || !completed {
		t.Fatalf("%v, %v", completed, err)
	}
	want := map[string]float64{"steps": 7, "val_loss": 1.25, "train_loss": math.NaN(),
		"error_rel": math.Inf(-1)}
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
	if _, _, err := metrics.ReadNumbers(vfs.At(path)); err == nil ||
		!strings.Contains(err.Error(), path) {
		t.Errorf("of half a file: %v", err)
	}
}

func TestLast(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	record := func(step string) string { return `{"step":` + step + `,"loss":2.5}` }
	long := strings.Repeat(record("3")+"\n", 10_000)
	// A record of many weights.
	wide := `{"step":5,"loss":2.5,"weights":{"w0":{"flip_rate":0.5,"dwell_mean":1}` +
		strings.Repeat(`,"w":{"flip_rate":0.5,"dwell_mean":1}`, 5000) + `}}`
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

// TestLastValidation checks that the last record has the newest validation loss.
func TestLastValidation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	evaluation := func(loss string) string {
		return `{"step":2,"loss":2.5,"val_loss":` + loss + `}` + "\n"
	}
	record := `{"step":9,"loss":2.5}` + "\n"
	for _, c := range []struct {
		content string
		loss    metrics.Number // 0 for none
	}{
		{"", 0},
		{record, 0},
		{evaluation("1") + evaluation("2") + record, 2},
		{evaluation("1") + evaluation("2")[:20], 1},
		{evaluation("1") + evaluation(`"many"`) + record, 0},
		{evaluation("1") + strings.Repeat(record, 1000), 1},
		{evaluation("1") + strings.Repeat(record, 100_000), 0}, // too far from the end
		{`{"x":"` + strings.Repeat("x", 2<<20) + `","val_loss":3}` + "\n", 3},
	} {
		put(t, path, []byte(c.content))
		r, ok, err := metrics.Last(vfs.At(path))
		if err != nil || ok != (c.content != "") || (r.ValLoss != nil) != (c.loss > 0) ||
			c.loss > 0 && *r.ValLoss != c.loss {
			t.Errorf("%.60q: %+v, %v, %v", c.content, r, ok, err)
		}
	}
}

// TestLabel checks that numbers of records and summaries have labels, and that others stay.
func TestLabel(t *testing.T) {
	rest := []string{"weights", "tensors", "applied_params", "diagnostics", "total_steps", "silence",
		"tokens", "steps", "parameters"}
	for _, of := range []reflect.Type{reflect.TypeFor[metrics.Record](),
		reflect.TypeFor[metrics.Summary]()} {
		for i := range of.NumField() {
			field := of.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			number := field.Type == reflect.TypeFor[metrics.Number]() ||
				field.Type == reflect.TypeFor[*metrics.Number]() ||
				of == reflect.TypeFor[metrics.Summary]() &&
					(field.Type.Kind() == reflect.Int || field.Type.Kind() == reflect.Int64 ||
						field.Type.Kind() == reflect.Float64)
			if number && metrics.Label(name) == name && !slices.Contains(rest, name) {
				t.Errorf("%s: %s has no label", of, name)
			}
		}
	}
	if got := metrics.Label("hellaswag.acc_norm"); got != "hellaswag.acc_norm" {
		t.Errorf("an unknown name becomes %q", got)
	}
}
