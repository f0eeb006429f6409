package rundir

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// FuzzCondition: a condition is refused with its text, or says the same when it is put
// together again; of a condition and its opposite one holds, for what is not NaN.
func FuzzCondition(f *testing.F) {
	for _, seed := range []string{"quantizer.bits=4", "val_loss<3", "run~demo", `name = "a\nb"`, "steps!=20", "x>=NaN", "=", "a~=b", "loss<=1e999"} {
		f.Add(seed, "4", 2.5)
	}
	opposite := map[string]string{"=": "!=", "<": ">=", ">": "<="}
	f.Fuzz(func(t *testing.T, text, value string, x float64) {
		c, err := ParseCondition(text)
		if err != nil {
			if !strings.Contains(err.Error(), strconv.Quote(text)) {
				t.Fatalf("no condition in %v", err)
			}
			return
		}
		r := &Run{Dir: "runs/a", State: Done, config: []Entry{{"k", strconv.Quote(value)}}, results: []Result{{"x", x}}}
		for _, name := range []string{c.Name, "k", "x", dirName} {
			c := c
			c.Name = name
			other, ok := opposite[c.Op]
			have, found := r.Lookup(name)
			if !ok || !found || isNaN(have) || isNaN(c.Value) {
				c.Holds(r)
				continue
			}
			if not := (Condition{name, other, c.Value}); c.Holds(r) == not.Holds(r) {
				t.Fatalf("%+v and %+v are both %v of %q", c, not, c.Holds(r), have)
			}
		}
		_ = Known([]*Run{r}, c.Name)
	})
}

func isNaN(text string) bool {
	x, err := strconv.ParseFloat(text, 64)
	return err == nil && x != x
}

// FuzzOpen: whatever the files of a run hold, it is listed, and what it has under a name
// can be looked up; one that is unreadable says why.
func FuzzOpen(f *testing.F) {
	f.Add([]byte(base), []byte(`{"completed":true,"val_loss":2.5}`), []byte(""))
	f.Add([]byte(base+"\n[[quantizer.overrides]]\nmatch='a'\nplugin='b'\n\"odd key\"=[1,{a=2}]"), []byte(`{"completed":false}`), []byte(`{"step":3,"loss":"NaN"}`+"\n{"))
	f.Add([]byte("a = 1979-05-27T07:32:00Z\nb = nan\nc = []"), []byte(``), []byte("null\n"))
	dir := f.TempDir()
	at := At(dir)
	f.Fuzz(func(t *testing.T, config, summary, records []byte) {
		for path, content := range map[string][]byte{at.Config().Name: config, at.Summary().Name: summary, at.Metrics().Name: records} {
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if (r.State == Unreadable) != (r.Err != "") || r.Err != "" && !strings.Contains(r.Err, dir) {
			t.Fatalf("%s: %q", r.State, r.Err)
		}
		for _, e := range r.Config() {
			if _, ok := r.Lookup(e.Key); !ok && r.State != Unreadable {
				t.Fatalf("nothing under %q of %v", e.Key, r.Config())
			}
		}
		for _, e := range r.Results() {
			if _, ok := r.Lookup(e.Name); !ok {
				t.Fatalf("nothing under %q", e.Name)
			}
		}
	})
}
