package serve_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/cage-qat/cage/host/internal/testbrowser"
	"github.com/cage-qat/cage/host/study/serve"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/effort"
)

// TestRenewedInABrowser: all parts of a page follow the files, also where a run is replaced by another one.
func TestRenewedInABrowser(t *testing.T) {
	effort.Long(t, "starts a browser")
	t.Parallel()
	root := runs(t)
	query := url.Values{"run": {filepath.Join(root, "a"), filepath.Join(root, "b")}}.Encode()
	b := opened(t, root, "/compare?"+query)
	b.Await("no curves are drawn", drawing+` === 3`)
	put(t, root, "b", "summary.json", `{"completed": true, "steps": 40, "val_loss": 7.25}`)
	b.Await("the results are not renewed", `document.body.textContent.includes("7.25")`)
	put(t, root, "b", "run.toml", "seed = 5\n[train]\nsteps = 70\n")
	b.Await("the configurations are not renewed", `[...document.querySelectorAll("th")].some((h) => h.textContent === "train.steps")`)

	base := testbrowser.Eval[string](b, `location.origin`)
	b.Do(chromedp.Navigate(base + "/run?" + url.Values{"run": {filepath.Join(root, "b")}}.Encode()))
	b.Await("not all curves are drawn", drawing+` === 5`)
	put(t, root, "b", "run.toml", "seed = 6\n[train]\nsteps = 71\n")
	put(t, root, "b", "metrics.jsonl", `{"step":1,"loss":2}`+"\n"+`{"step":2,"loss":1}`+"\n")
	b.Await("the configuration is not renewed", `[...document.querySelectorAll("td")].some((d) => d.textContent === "71")`)
	b.Await("curves are shown that the run has no more", `document.querySelectorAll("#charts figure").length === 1`)
	put(t, root, "b", "metrics.jsonl", records(1, 3))
	b.Await("curves do not come again", drawing+` === 5`)
}

// TestTroubleEnds: what a page complains about goes when it is over, and an answer that does not come is complained about.
func TestTroubleEnds(t *testing.T) {
	effort.Long(t, "starts a browser")
	t.Parallel()
	root := runs(t)
	run := filepath.Join(root, "b")
	lock, err := rundir.At(run).Lock().Lock()
	if err != nil {
		t.Fatal(err)
	}
	h := serve.New(serve.Options{Roots: []string{root}, Token: secret}).Handler()
	var silent atomic.Bool
	server := httptest.NewServer(impatient(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if silent.Load() && r.URL.Path == "/facts" {
			<-r.Context().Done()
			return
		}
		h.ServeHTTP(w, r)
	})))
	t.Cleanup(server.Close)
	b := testbrowser.Open(t, server.URL+"/run?"+url.Values{"run": {run}}.Encode()+"#token="+secret, func(u string) bool { return strings.HasPrefix(u, server.URL+"/") })
	b.Await("no curves are drawn", drawing+` > 0`)
	const said = `(document.getElementById("trouble").hidden ? "" : document.getElementById("trouble").textContent)`

	// A button of a run that has just ended.
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	testbrowser.Eval[any](b, `(() => { const button = document.createElement("button"); button.dataset.ask = "stop"; document.getElementById("facts").append(button); button.click(); })()`)
	b.Await("it is not said that the run has ended", said+`.includes("no process trains")`)
	b.Await("it is said for ever", said+` === ""`)

	// A connection that died. The page waits for half a minute, here for less.
	testbrowser.Eval[any](b, `AbortSignal.timeout = ((timeout) => () => timeout(500))(AbortSignal.timeout.bind(AbortSignal)); undefined`)
	silent.Store(true)
	b.Await("it is not said that there is no answer", said+`.includes("does not answer")`)
	silent.Store(false)
	put(t, run, "metrics.jsonl", records(1, 77))
	b.Await("nobody asks again", `document.getElementById("facts").textContent.includes("77 of 100")`)
	b.Await("there is an answer, but it is said that there is none", said+` === ""`)
}
