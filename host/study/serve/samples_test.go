package serve_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/cage-qat/cage/internal/testing/testbrowser"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// TestSamples checks that the newest texts are first and open, that old ones are left out, and that
// invalid lines are skipped.
func TestSamples(t *testing.T) {
	root := runs(t)
	h, b := pages(root), filepath.Join(root, "b")
	if body := get(t, h, "/run", "run", b).Body.String(); strings.Contains(body, "<h2>Samples") {
		t.Error("a run without texts has a heading for them")
	}
	var text strings.Builder
	for step := 1; step <= 30; step++ {
		fmt.Fprintf(&text, `{"step":%d,"texts":[{"prompt":"func <main>","text":"() { // %d\n}"}]}`+"\nno JSON\n", step, step)
	}
	put(t, root, "b", "samples.jsonl", text.String()+`{"step":31,"texts":[{"pro`)
	body := get(t, h, "/samples", "run", b).Body.String()
	const newest = "<details data-step=\"30\" open>\n<summary>after step 30</summary>\n<pre " +
		"class=\"sample\" tabindex=\"0\"><span class=\"prompt\">func &lt;main&gt;</span>() { // " +
		"30\n}</pre>"
	if !strings.Contains(body, newest) || strings.Count(body, "<details") != 20 ||
		!strings.Contains(body, "after step 11<") {
		t.Errorf("the texts are shown as\n%s", body)
	}
	add(t, filepath.Join(b, "samples.jsonl"), `mpt":"x","text":"y"}]}`+"\n")
	if body = get(t, h, "/samples", "run", b).Body.String(); !strings.Contains(body,
		"after step 31<") {
		t.Errorf("a text that was added is missing in\n%.300s", body)
	}
}

func add(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// TestSamplesInABrowser checks that the page shows texts when they are written.
func TestSamplesInABrowser(t *testing.T) {
	testlevel.Long(t, "starts a browser")
	t.Parallel()
	root := runs(t)
	page := opened(t, root, "/run?run="+filepath.Join(root, "b"))
	page.Await("no curves are drawn", drawing+` > 0`)
	put(t, root, "b", "samples.jsonl",
		`{"step":40,"texts":[{"prompt":"func ","text":"(t *T) Close() error {\n\treturn nil\n}"},{"prompt":"// ","text":"λ <b>"}]}`+"\n")
	page.Await("no texts are shown", `document.querySelectorAll("#samples pre").length === 2`)
	page.Want("a text", testbrowser.Eval[string](page,
		`document.querySelectorAll("#samples pre")[1].textContent`), "// λ <b>")
	page.Do(chromedp.ScrollIntoView(chromedp.CSS("#samples")))
	page.Shoot("serve-samples")
}
