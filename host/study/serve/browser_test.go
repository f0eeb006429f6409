package serve_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/testing/testbrowser"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// impatient makes the script poll more often, so that tests in a browser need not wait.
func impatient(h http.Handler) http.Handler {
	faster := strings.NewReplacer("EVERY = 2000", "EVERY = 100")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/assets/live.js" {
			h.ServeHTTP(w, r)
			return
		}
		r.Header.Del("If-None-Match")
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, r)
		script := faster.Replace(answer.Body.String())
		if !strings.Contains(script, "EVERY = 100;") {
			http.Error(w, "the script names its intervals otherwise", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", answer.Header().Get("Content-Type"))
		fmt.Fprint(w, script)
	})
}

// opened opens a page of a server of the runs below a root.
func opened(t *testing.T, root, page string) *testbrowser.Browser {
	server := httptest.NewServer(impatient(pages(root)))
	t.Cleanup(server.Close)
	b := testbrowser.Open(t, server.URL+page,
		func(url string) bool { return strings.HasPrefix(url, server.URL+"/") })
	t.Cleanup(func() {
		for _, c := range b.Complaints() {
			t.Error(c)
		}
	})
	return b
}

const (
	names   = `[...document.querySelectorAll("#list tbody th")].map((h) => h.textContent.split("/").pop()[0]).join(" ")`
	legend  = `[...document.querySelectorAll(".u-legend .u-series:not(.end) .u-label")].slice(1).map((l) => l.textContent)`
	newest  = `document.querySelector("#chart .u-over") && (document.querySelector("#chart .u-over").focus(), document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "End" })), document.querySelector("#chart .u-legend .u-value").textContent)`
	wide    = `document.documentElement.scrollWidth <= document.documentElement.clientWidth`
	drawing = `document.querySelectorAll(".plot canvas").length`
)

// TestRunsInABrowser checks that the table is filtered while typing, that curves grow, and that
// selecting runs selects curves.
func TestRunsInABrowser(t *testing.T) {
	t.Parallel()
	root := runs(t)
	b := opened(t, root, "/")
	b.Await("no curves are drawn", drawing+` === 1`)
	b.Await("curves of the wrong runs", legend+`.length === 3`)
	b.Want("rows", testbrowser.Eval[string](b, names), "a b c d")
	b.Do(chromedp.Click(chromedp.CSS(`#list input[value$="/b"]`)))
	b.Await("curves of a run that was not chosen", legend+`.length === 1`)
	b.Await("the curve does not end at step 40", newest+` === "40"`)
	put(t, root, "b", "metrics.jsonl", records(1, 70))
	b.Await("the curve does not grow", newest+` === "70"`)
	b.Await("it is not said that the curve is smoothed now",
		`document.querySelector("#chart .hint").textContent.startsWith("Smoothed")`)
	b.Want("b is still chosen",
		testbrowser.Eval[bool](b, `document.querySelector('#list input[value$="/b"]').checked`), true)
	b.Do(chromedp.SendKeys(chromedp.CSS("#words"), "quantizer.bits=4"))
	b.Await("the filter has no effect", names+` === "a"`)
	b.Await("the address lacks the filter", `location.search === "?q=quantizer.bits%3D4"`)
	b.Do(chromedp.Click(chromedp.CSS(`a.sort`)),
		chromedp.WaitReady(chromedp.CSS(`th[aria-sort=ascending]`)))
	b.Want("the filter after sorting",
		testbrowser.Eval[string](b, names+` + document.getElementById("words").value`),
		"aquantizer.bits=4")
}

// TestPanelInABrowser checks that a late response is not drawn if another panel has been selected.
func TestPanelInABrowser(t *testing.T) {
	testlevel.Long(t, "starts a browser")
	t.Parallel()
	h := pages(runs(t))
	var slow atomic.Bool
	server := httptest.NewServer(
		impatient(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/curves" && slow.Load() {
				time.Sleep(300 * time.Millisecond)
			}
			h.ServeHTTP(w, r)
		})))
	t.Cleanup(server.Close)
	b := testbrowser.Open(t, server.URL,
		func(url string) bool { return strings.HasPrefix(url, server.URL+"/") })
	b.Await("no curves are drawn", drawing+` === 1`)
	slow.Store(true)
	choose := func(panel string) {
		testbrowser.Eval[bool](b,
			fmt.Sprintf(`(() => { const p = document.getElementById("panel"); p.value = %q; return p.dispatchEvent(new Event("change")); })()`, panel))
	}
	said := `document.querySelector("#chart .u-over")?.getAttribute("aria-label") ?? ""`
	for range 3 {
		choose("lambda")
		time.Sleep(100 * time.Millisecond)
		choose("lr") // while the request for λ is pending
		b.Await("the learning rate is not drawn", `(`+said+`).startsWith("Learning rate")`)
		choose("loss")
		b.Await("the loss is not drawn", `(`+said+`).startsWith("Loss")`)
	}
}

// TestFilterKeepsChoice checks that a filter that hides selected runs does not deselect them.
func TestFilterKeepsChoice(t *testing.T) {
	testlevel.Long(t, "starts a browser")
	t.Parallel()
	b := opened(t, runs(t), "/")
	chosen := `[...document.querySelectorAll("#list input:checked")].map((box) => box.value.split("/").pop()).join(" ")`
	b.Await("no curves are drawn", drawing+` === 1`)
	// By script, because redrawn curves move the table under a pointer.
	for _, run := range []string{"a", "b"} {
		testbrowser.Eval[any](b, `document.querySelector('#list input[value$="/`+run+`"]').click()`)
	}
	b.Do(chromedp.SendKeys(chromedp.CSS("#words"), "quantizer.bits=4"))
	b.Await("the filter has no effect", names+` === "a"`)
	testbrowser.Eval[bool](b,
		`(() => { const w = document.getElementById("words"); w.value = ""; return w.dispatchEvent(new Event("input")); })()`)
	b.Await("the choice is lost", chosen+` === "a b"`)
}

// TestRunInABrowser checks that the page of a run draws all metrics that it has recorded.
func TestRunInABrowser(t *testing.T) {
	testlevel.Long(t, "starts a browser")
	t.Parallel()
	root := runs(t)
	a := filepath.Join(root, "a")
	page := opened(t, root, "/run?"+url.Values{"run": {a}}.Encode())
	page.Await("not all curves are drawn", drawing+` === 3`)
	base := testbrowser.Eval[string](page, `location.origin`)
	page.Do(chromedp.Navigate(base + "/run?" +
		url.Values{"run": {filepath.Join(root, "c <b>&c")}}.Encode()))
	page.Await("hostile records are not drawn", drawing+` >= 1`)
}

// TestLongNames checks that names that differ at the end are shown in full, also on a phone.
func TestLongNames(t *testing.T) {
	testlevel.Long(t, "starts a browser")
	t.Parallel()
	root := filepath.Join(t.TempDir(), "studies")
	for _, seed := range []string{"1", "2"} {
		put(t, root, "one", "cells",
			"quantizer=quest,bits=4,method.lambda=10,schedule.rate=0.003,model.width=1024,"+
				"train.steps=100000,seed="+seed, "run.toml", "seed = "+seed+"\n")
	}
	b := opened(t, root, "/")
	const whole = `[...document.querySelectorAll("#list tbody th")].every((h) => h.clientWidth > 120 && h.scrollWidth <= h.clientWidth && [...h.querySelectorAll("a")].every((a) => a.getBoundingClientRect().right <= h.getBoundingClientRect().right))`
	b.Want("names are shown whole", testbrowser.Eval[bool](b, whole), true)
	b.Shoot("serve-long-names")
	testbrowser.Call(b, emulation.SetDeviceMetricsOverride,
		emulation.SetDeviceMetricsOverrideParams{Width: 375, Height: 700, DeviceScaleFactor: 2,
			Mobile: true})
	b.Want("names are shown whole on a phone", testbrowser.Eval[bool](b, whole), true)
	b.Want("the page is no wider than a phone", testbrowser.Eval[bool](b, wide), true)
	b.Shoot("serve-long-names-phone")
}

// TestModes checks that pages have a dark mode and fit the width of a phone.
func TestModes(t *testing.T) {
	testlevel.Long(t, "starts a browser")
	t.Parallel()
	root := runs(t)
	b := opened(t, root, "/")
	b.Await("no curves are drawn", drawing+` === 1`)
	const paper = `getComputedStyle(document.body).backgroundColor`
	b.Mode("screen", "light")
	light := testbrowser.Eval[string](b, paper)
	b.Mode("screen", "dark")
	if dark := testbrowser.Eval[string](b, paper); dark == light {
		t.Errorf("the paper is %s, dark and light", dark)
	}
	base := testbrowser.Eval[string](b, `location.origin`)
	testbrowser.Call(b, emulation.SetDeviceMetricsOverride,
		emulation.SetDeviceMetricsOverrideParams{Width: 375, Height: 700, DeviceScaleFactor: 2,
			Mobile: true})
	a := url.Values{"run": {filepath.Join(root, "a")}}.Encode()
	for _, page := range []string{"/", "/run?" + a} {
		b.Do(chromedp.Navigate(base + page))
		b.Await(page+" has no curves", drawing+` > 0`)
		b.Await(page+" is wider than a phone", wide)
		b.Shoot("serve-phone-" + strings.Trim(strings.Split(page, "?")[0], "/"))
	}
}

// TestAxes checks that axis labels fit beside their charts, and that an axis of zeros does not go
// up to 100.
func TestAxes(t *testing.T) {
	testlevel.Long(t, "starts a browser")
	t.Parallel()
	root := filepath.Join(t.TempDir(), "runs")
	put(t, root, "a", "run.toml", "seed = 1\n")
	put(t, root, "a", "metrics.jsonl",
		`{"step":1,"loss":2,"lambda":0,"cross_entropy":1,"divergence":1,"flip_rate":0.5,"flops_per_second":1e9}`+"\n"+`{"step":2,"loss":1,"lambda":0}`+"\n")
	b := opened(t, root, "/run?run="+url.QueryEscape(filepath.Join(root, "a")))
	b.Await("no curves are drawn", drawing+` >= 6`)
	const limits = `(data, low, high) => JSON.stringify(options({ x: "step", y: "y", series: [], ...data }, false, 500, 280).scales.y.range(null, low, high))`
	b.Want("the axis of zeros", testbrowser.Eval[string](b, `(`+limits+`)({}, 0, 0)`), "[0,1]")
	b.Want("another axis", testbrowser.Eval[string](b, `(`+limits+`)({}, 0, 90)`), "[0,99]")
	b.Want("an axis without values", testbrowser.Eval[string](b, `(`+limits+`)({}, null, null)`),
		"[null,null]")
	b.Want("an axis that is given",
		testbrowser.Eval[string](b,
			`JSON.stringify(options({ x: "step", y: "y", series: [], ymax: 7, logy: false }, false, 500, 280).scales.y.range)`), "[0,7]")
	const width = `(label, room) => { ruler.font = fitted(label, room); return ruler.measureText(label).width; }`
	b.Want("short labels that are not cut",
		testbrowser.Eval[bool](b,
			`(`+width+`)("Floating-point operations of the model per second", 216) <= 216`), true)
	b.Want("the font of a short label", testbrowser.Eval[string](b, `fitted("Loss", 216)`),
		"12px system-ui, sans-serif")
	shown := `[...document.querySelectorAll("#charts .u-over")].map((o) => o.getAttribute("aria-label").split(" over ")[0]).join("; ")`
	b.Want("the labels", testbrowser.Eval[string](b, shown), "Loss, nats per token; nats per token; "+
		"nats per token; Weight of the correction, λ; fraction; Floating-point operations of the model "+
		"per second")
}

// TestRenewedInABrowser checks that all parts of a page follow the files, even if another run
// replaces the run.
func TestRenewedInABrowser(t *testing.T) {
	testlevel.Long(t, "starts a browser")
	t.Parallel()
	root := runs(t)
	b := opened(t, root, "/run?"+url.Values{"run": {filepath.Join(root, "b")}}.Encode())
	b.Await("not all curves are drawn", drawing+` === 3`)
	put(t, root, "b", "summary.json", `{"completed": true, "steps": 40, "val_loss": 7.25}`)
	b.Await("the results are not renewed", `document.body.textContent.includes("7.25")`)
	put(t, root, "b", "run.toml", "seed = 5\n[train]\nsteps = 70\n")
	b.Await("the configurations are not renewed",
		`[...document.querySelectorAll("th")].some((h) => h.textContent === "train.steps")`)

	put(t, root, "b", "run.toml", "seed = 6\n[train]\nsteps = 71\n")
	put(t, root, "b", "metrics.jsonl", `{"step":1,"loss":2}`+"\n"+`{"step":2,"loss":1}`+"\n")
	b.Await("the configuration is not renewed",
		`[...document.querySelectorAll("td")].some((d) => d.textContent === "71")`)
	b.Await("curves are shown that the run has no more",
		`document.querySelectorAll("#charts figure").length === 1`)
	put(t, root, "b", "metrics.jsonl", records(1, 3))
	b.Await("curves do not come again", drawing+` === 3`)
}

// TestTroubleEnds checks that a page reports a missing response, and removes the message when a
// response arrives.
func TestTroubleEnds(t *testing.T) {
	testlevel.Long(t, "starts a browser")
	t.Parallel()
	root := runs(t)
	run := filepath.Join(root, "b")
	h := pages(root)
	var silent atomic.Bool
	server := httptest.NewServer(
		impatient(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if silent.Load() && r.URL.Path == "/facts" {
				<-r.Context().Done()
				return
			}
			h.ServeHTTP(w, r)
		})))
	t.Cleanup(server.Close)
	b := testbrowser.Open(t, server.URL+"/run?"+url.Values{"run": {run}}.Encode(),
		func(u string) bool { return strings.HasPrefix(u, server.URL+"/") })
	b.Await("no curves are drawn", drawing+` > 0`)
	const said = `(document.getElementById("trouble").hidden ? "" : document.getElementById("trouble").textContent)`

	// The connection is dead. The page's timeout of half a minute is shortened here.
	testbrowser.Eval[any](b,
		`AbortSignal.timeout = ((timeout) => () => timeout(500))(AbortSignal.timeout.bind(AbortSignal)); undefined`)
	silent.Store(true)
	b.Await("it is not said that there is no answer", said+`.includes("does not answer")`)
	silent.Store(false)
	put(t, run, "metrics.jsonl", records(1, 77))
	b.Await("nobody asks again", `document.getElementById("facts").textContent.includes("77 of 100")`)
	b.Await("there is an answer, but it is said that there is none", said+` === ""`)
}

// trained locks a run, which then counts as running until the test ends.
func trained(t testing.TB, dir string) rundir.Dir {
	t.Helper()
	lock, err := rundir.At(dir).Lock().Lock()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lock.Unlock(); err != nil {
			t.Error(err)
		}
	})
	return rundir.At(dir)
}

// sample returns a line of samples.jsonl with two texts.
func sample(step int) string {
	return fmt.Sprintf(`{"step":%d,"texts":[{"prompt":"a","text":"first of %d"},{"prompt":"b","text":"second of %d"}]}`+"\n", step, step, step)
}

// TestFocusStays checks that the focused element keeps the focus when its part of the page is
// rebuilt, and that opened texts stay open.
func TestFocusStays(t *testing.T) {
	testlevel.Long(t, "starts a browser")
	t.Parallel()
	root := runs(t)
	b := trained(t, filepath.Join(root, "b"))
	put(t, b.Name, "samples.jsonl", sample(10)+sample(20))
	server := httptest.NewServer(impatient(pages(root)))
	t.Cleanup(server.Close)
	page := testbrowser.Open(t, server.URL+"/run?"+url.Values{"run": {b.Name}}.Encode(),
		func(u string) bool { return strings.HasPrefix(u, server.URL+"/") })
	page.Await("no curves", drawing+` > 0`)
	focused := func() string {
		return testbrowser.Eval[string](page, `document.activeElement.textContent`)
	}
	const text = `document.querySelectorAll('[data-step="10"] pre')[1]`
	evaluated := func(samples ...string) {
		put(t, b.Name, "samples.jsonl", strings.Join(samples, ""))
		page.Await("the texts are not renewed",
			fmt.Sprintf(`document.querySelectorAll("#samples details").length === %d`, len(samples)))
	}
	testbrowser.Eval[any](page,
		`document.querySelector('[data-step="10"]').open = true, `+text+`.focus()`)
	evaluated(sample(10), sample(20), sample(30))
	page.Want("the focus", focused(), "bsecond of 10")
	page.Want("open texts",
		testbrowser.Eval[string](page,
			`[...document.querySelectorAll("details[open]")].map((d) => d.dataset.step).join(" ")`),
		"30 20 10")
	testbrowser.Eval[any](page, `document.querySelector('[data-step="20"] summary').focus()`)
	evaluated(sample(10), sample(20), sample(30), sample(40))
	page.Want("the focus", focused(), "after step 20")
}
