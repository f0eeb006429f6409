package serve_test

import (
	"fmt"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/internal/testbrowser"
	"github.com/cage-qat/cage/host/study/serve"
	"github.com/cage-qat/cage/internal/effort"
)

// sample is a line of samples.jsonl with two texts.
func sample(step int) string {
	return fmt.Sprintf(`{"step":%d,"texts":[{"prompt":"a","text":"first of %d"},{"prompt":"b","text":"second of %d"}]}`+"\n", step, step, step)
}

// TestFocusStays: what has the focus keeps it when its part of the page is made anew, and the page stays where it is;
// texts that were opened stay open.
func TestFocusStays(t *testing.T) {
	effort.Long(t, "starts a browser")
	t.Parallel()
	root := runs(t)
	b := trained(t, filepath.Join(root, "b"))
	put(t, b.Name, "samples.jsonl", sample(10)+sample(20))
	server := httptest.NewServer(impatient(serve.New(serve.Options{Roots: []string{root}, Token: secret}).Handler()))
	t.Cleanup(server.Close)
	page := testbrowser.Open(t, server.URL+"/run?"+url.Values{"run": {b.Name}}.Encode()+"#token="+secret, func(u string) bool { return strings.HasPrefix(u, server.URL+"/") })
	page.Await("no weights", drawing+` > 0 && document.querySelectorAll("#weights tbody tr").length === 2`)
	steps := func(n int) {
		put(t, b.Name, "metrics.jsonl", records(1, n))
		page.Await("the steps are not renewed", fmt.Sprintf(`document.getElementById("facts").textContent.includes(" %d of 100")`, n))
	}
	focused := func() string {
		return testbrowser.Eval[string](page, `(({ dataset, textContent }) => dataset.ask ?? textContent)(document.activeElement)`)
	}
	testbrowser.Eval[any](page, `document.querySelector('[data-ask="stop"]').focus()`)
	steps(41)
	page.Want("the focus", focused(), "stop")
	testbrowser.Eval[any](page, `scrollTo(0, 300)`)
	steps(42)
	page.Want("the focus", focused(), "stop")
	page.Want("the place of the page", testbrowser.Eval[int](page, `scrollY`), 300)

	const text = `document.querySelectorAll('[data-step="10"] pre')[1]`
	evaluated := func(samples ...string) {
		put(t, b.Name, "samples.jsonl", strings.Join(samples, ""))
		page.Await("the texts are not renewed", fmt.Sprintf(`document.querySelectorAll("#samples details").length === %d`, len(samples)))
	}
	testbrowser.Eval[any](page, `document.querySelector('[data-step="10"]').open = true, `+text+`.focus()`)
	evaluated(sample(10), sample(20), sample(30))
	page.Want("the focus", focused(), "bsecond of 10")
	page.Want("open texts", testbrowser.Eval[string](page, `[...document.querySelectorAll("details[open]")].map((d) => d.dataset.step).join(" ")`), "30 20 10")
	testbrowser.Eval[any](page, `document.querySelector('[data-step="20"] summary').focus()`)
	evaluated(sample(10), sample(20), sample(30), sample(40))
	page.Want("the focus", focused(), "after step 20")
}
