package serve_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/study/serve"
)

// hostile is a text with special characters of every language of a page.
const hostile = `<b>&"'|*_$\{}%# λ</script><script>alert(1)</script><img src=x onerror=alert(2)>`

// put replaces a file atomically: path elements come first, the content last.
func put(t testing.TB, elem ...string) {
	t.Helper()
	path := filepath.Join(elem[:len(elem)-1]...)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	// A page that reads meanwhile must not find half of the file, which no run would write.
	whole := path + ".new"
	if err := os.WriteFile(whole, []byte(elem[len(elem)-1]), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(whole, path); err != nil {
		t.Fatal(err)
	}
}

// records returns the records of a range of steps, with weights.
func records(from, to int) string {
	var b strings.Builder
	for step := from; step <= to; step++ {
		fmt.Fprintf(&b, `{"step":%d,"loss":%g,"lr":0.001,"lambda":0,"weights":{"block.0.w":{"flip_rate":0.25,"dwell_mean":%d},"block.1.w":{"flip_rate":0.5,"dwell_mean":2}}}`+"\n", step, 5/float64(step), step)
	}
	return b.String()
}

// runs writes four runs to a root: done, interrupted, with hostile texts, and unreadable.
func runs(t testing.TB) (root string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "runs")
	put(t, root, "a", "run.toml",
		"seed = 1\n[train]\nsteps = 100\n[quantizer]\nplugin = \"quest\"\nbits = 4\n")
	put(t, root, "a", "metrics.jsonl", records(1, 100))
	put(t, root, "a", "summary.json",
		`{"completed": true, "steps": 100, "train_loss": 0.05, "val_loss": -2.5, "stopped": "no number"}`)
	put(t, root, "b", "run.toml",
		"seed = 2\n[train]\nsteps = 100\n[quantizer]\nplugin = \"quest\"\nbits = 2\n")
	put(t, root, "b", "metrics.jsonl", records(1, 40))
	put(t, root, "c "+hostile[:3]+"&c", "run.toml", "seed = 3\ntitle = '''"+hostile+"'''\n")
	put(t, root, "c "+hostile[:3]+"&c", "metrics.jsonl",
		`{"step":1,"loss":"NaN"}`+"\n"+`{"step":2,"loss":1,"x<b>":3,"weights":{"<img src=x>":{"<b>":1}}}`+"\nno JSON\n"+`{"step":3,"loss":2}`+"\n")
	put(t, root, "c "+hostile[:3]+"&c", "summary.json",
		`{"completed": false, "stopped": "failed", "error": `+quoted(hostile)+`}`)
	put(t, root, "c "+hostile[:3]+"&c", "samples.jsonl",
		`{"step":1,"texts":[{"prompt":`+quoted(hostile)+`,"text":`+quoted(hostile)+`}]}`+"\n")
	put(t, root, "d", "run.toml", "seed = \n")
	return root
}

func quoted(text string) string {
	out, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(out)
}

// get sends a request to a handler like a browser on this machine.
func get(t testing.TB, h http.Handler, path string, query ...string) *httptest.ResponseRecorder {
	t.Helper()
	q := url.Values{}
	for i := 0; i < len(query); i += 2 {
		q.Add(query[i], query[i+1])
	}
	r := httptest.NewRequest("GET", path+"?"+q.Encode(), nil)
	r.Host = "localhost:7170"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func pages(roots ...string) http.Handler { return serve.New("", roots...).Handler() }

var rowHead = regexp.MustCompile(`<th scope="row"><a href="[^"]*">([^<]*)</a>`)

// TestTable checks that runs are filtered and sorted as in `cage runs list`.
func TestTable(t *testing.T) {
	root := runs(t)
	h := pages(root)
	for _, c := range []struct{ q, sort, want, says string }{
		{"", "", "a b c d", "4 of 4 runs"},
		{"", "-run", "d c b a", "4 of 4 runs"},
		{"", "steps", "c b a d", "4 of 4 runs"},
		{"quantizer.bits=4", "", "a", "1 of 4 runs"},
		{"quantizer.bits<9 state=interrupted", "", "b", "1 of 4 runs"},
		{"QUEST bits", "-seed", "b a", "2 of 4 runs"},
		{"nowhere", "", "", "0 of 4 runs"},
		{"sead=3", "", "a b c d", "did you mean seed?"},
		{"=", "nothing", "c", "1 of 4 runs"},
	} {
		for _, path := range []string{"/", "/table"} {
			w := get(t, h, path, "q", c.q, "sort", c.sort)
			var got []string
			for _, m := range rowHead.FindAllStringSubmatch(w.Body.String(), -1) {
				got = append(got, filepath.Base(m[1])[:1])
			}
			if w.Code != 200 || strings.Join(got, " ") != c.want ||
				!strings.Contains(w.Body.String(), c.says) {
				t.Errorf("%s, %q by %q: %d, %q, want %q and %q", path, c.q, c.sort, w.Code, got, c.want, c.says)
			}
		}
	}
	body := get(t, h, "/table", "q", "a").Body.String()
	for _, want := range []string{"100 / 100", "−2.5", `<span class="state done">`} {
		if !strings.Contains(body, want) {
			t.Errorf("the table lacks %q:\n%s", want, body)
		}
	}
}

// TestRunningFirst checks that by default, runs that are being trained come first.
func TestRunningFirst(t *testing.T) {
	root := runs(t)
	trained(t, filepath.Join(root, "b"))
	for sort, want := range map[string]string{"": "b a c d", "run": "a b c d", "-run": "d c b a"} {
		var got []string
		for _, m := range rowHead.FindAllStringSubmatch(
			get(t, pages(root), "/", "sort", sort).Body.String(), -1) {
			got = append(got, filepath.Base(m[1])[:1])
		}
		if strings.Join(got, " ") != want {
			t.Errorf("by %q: %q, want %q", sort, got, want)
		}
	}
}

// TestNothingYet checks that the directory need not exist yet.
func TestNothingYet(t *testing.T) {
	root := filepath.Join(t.TempDir(), "runs")
	if w := get(t, pages(root), "/"); w.Code != 200 ||
		!strings.Contains(w.Body.String(), "There is no run yet") {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
}

// TestRunPage checks that the page of a run shows its configuration and results.
func TestRunPage(t *testing.T) {
	root := runs(t)
	h := pages(root)
	a := filepath.Join(root, "a")
	put(t, a, "checkpoints", "step-00000100.ckpt", "")
	body := get(t, h, "/run", "run", a).Body.String()
	for _, want := range []string{`<div title="val_loss"><dt>validation loss</dt><dd>−2.5</dd></div>`,
		`<th scope="row">quantizer.weights.bits</th><td class="text">4</td>`} {
		if !strings.Contains(body, want) {
			t.Errorf("the page of a run lacks %q:\n%s", want, body)
		}
	}
}

// TestResults checks that the loss is first, that whole numbers have all digits, and that numbers
// in the configuration are left out.
func TestResults(t *testing.T) {
	root := runs(t)
	a := filepath.Join(root, "a")
	put(t, a, "summary.json",
		`{"completed": true, "lambda": 2, "parameters": 1115264, "steps": 100, "tokens": 12345, "train_loss": 1.23456789, "val_loss": -3, "zebra": -123456789}`)
	body := get(t, pages(root), "/run", "run", a).Body.String()
	var got []string
	for _, m := range regexp.MustCompile(`<dt>(.*)</dt><dd>(.*)</dd>`).
		FindAllStringSubmatch(body, -1) {
		got = append(got, m[1]+" "+m[2])
	}
	want := []string{"validation loss −3", "training loss 1.23457", "parameters 1,115,264",
		"steps 100", "tokens with a loss 12,345", "zebra −123456789"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want − got +:\n%s", diff)
	}
}

// TestUnchanged checks that what the browser already has is not sent again.
func TestUnchanged(t *testing.T) {
	h := pages(runs(t))
	first := get(t, h, "/assets/live.js")
	r := httptest.NewRequest("GET", "/assets/live.js", nil)
	r.Host = "127.0.0.1"
	r.Header.Set("If-None-Match", first.Header().Get("ETag"))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if first.Code != 200 || w.Code != http.StatusNotModified || w.Body.Len() != 0 {
		t.Errorf("%d, then %d with %d bytes", first.Code, w.Code, w.Body.Len())
	}
}

// TestAtOnce sends many requests at once, for the race detector.
func TestAtOnce(t *testing.T) {
	root := runs(t)
	h := pages(root)
	a := filepath.Join(root, "a")
	var all sync.WaitGroup
	for range 8 {
		for _, path := range []string{"/", "/table", "/run", "/facts", "/curves", "/assets/style.css"} {
			all.Go(func() {
				if w := get(t, h, path, "run", a); w.Code != 200 {
					t.Errorf("%s: %d %s", path, w.Code, w.Body)
				}
			})
		}
	}
	all.Wait()
}
