package report_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/study/report"
	"github.com/cage-qat/cage/internal/vfs"
)

// browser is a page in Chromium, with all that it complained about.
type browser struct {
	t          *testing.T
	ctx        context.Context
	lock       sync.Mutex
	complaints []string
}

// open shows a file in a headless Chromium; the test is skipped where there is none.
func open(t *testing.T, path string) *browser {
	t.Helper()
	var program string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if found, err := exec.LookPath(name); err == nil {
			program = found
			break
		}
	}
	if program == "" {
		t.Skip("SKIPPED: there is no Chromium here (Debian: apt install chromium), so that the page is not tested in a browser")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.WindowSize(1200, 900), chromedp.UserDataDir(t.TempDir()))
	allocator, stopAllocator := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stopAllocator)
	ctx, stop := chromedp.NewContext(allocator)
	t.Cleanup(stop)
	t.Cleanup(func() { _ = chromedp.Cancel(ctx) }) // it waits until the browser has left its directory
	b := &browser{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, func(event any) { b.listen(event, "file://"+path) }); err != nil {
		t.Fatal(err)
	}
	call(b, network.Enable, network.EnableParams{})
	call(b, log.Enable, cdp.Empty{})
	call(b, runtime.Enable, cdp.Empty{})
	b.do(chromedp.Navigate("file://" + path))
	return b
}

// limit is how long one action may take: longer than any does, even on a machine that
// does many other things.
const limit = time.Minute

// listen collects what a page must not do. A dialog, which would stop the page, fails
// the test by the time limit of what follows.
func (b *browser) listen(event any, self string) {
	b.lock.Lock()
	defer b.lock.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if url, _, _ := strings.Cut(e.Request.URL, "#"); url != self && !strings.HasPrefix(url, "data:") {
			b.complaints = append(b.complaints, "request of "+url)
		}
	case *log.EventEntryAdded:
		b.complaints = append(b.complaints, fmt.Sprintf("%s: %s", e.Entry.Level, e.Entry.Text))
	case *runtime.EventConsoleAPICalled:
		b.complaints = append(b.complaints, fmt.Sprintf("console: %s", e.Type))
	case *runtime.EventExceptionThrown:
		b.complaints = append(b.complaints, "exception: "+e.ExceptionDetails.Text)
	}
}

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, limit)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// call runs a command of the protocol.
func call[P, R any](b *browser, command cdp.Command[P, R], params P) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, command, params); err != nil {
		b.t.Fatal(err)
	}
}

// eval returns the value of an expression.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, limit)
	defer cancel()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return out
}

func (b *browser) want(what string, got, want any) {
	b.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		b.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// saved is the page of the study in fixture_test.go.
func saved(t *testing.T) string {
	t.Helper()
	s := parse(t, grid, t.TempDir())
	results(t, s)
	r, err := reportOf(s)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := r.Save(vfs.At(dir)); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, report.PageFile)
}

const firstColumn = `[...document.querySelectorAll("#table-1 table")[0].tBodies[0].rows].map(r => r.cells[0].textContent)`

func TestPageInABrowser(t *testing.T) {
	b := open(t, saved(t))
	t.Run("sort", func(t *testing.T) { b.t = t; testSort(b) })
	t.Run("curves", func(t *testing.T) { b.t = t; testCurves(b) })
	t.Run("zoom", func(t *testing.T) { b.t = t; testZoom(b) })
	t.Run("filter", func(t *testing.T) { b.t = t; testFilter(b) })
	t.Run("links", func(t *testing.T) { b.t = t; testLinks(b) })
	t.Run("modes", func(t *testing.T) { b.t = t; testModes(b) })
	b.lock.Lock()
	defer b.lock.Unlock()
	for _, c := range b.complaints {
		t.Error(c)
	}
}

// Tables are sorted by pointer and by keyboard; a third time restores the order.
func testSort(b *browser) {
	const quest = `#table-1 table thead th:nth-child(2)`
	b.want("rows at first", eval[[]string](b, firstColumn), []string{"2", "4", "16"})
	b.do(chromedp.Click(chromedp.CSS(quest + " button")))
	b.want("rows by the mean of QuEST, what is missing last", eval[[]string](b, firstColumn), []string{"4", "2", "16"})
	b.want("aria-sort", eval[string](b, `document.querySelector("`+quest+`").getAttribute("aria-sort")`), "ascending")
	b.do(chromedp.Focus(chromedp.CSS(quest+" button")), chromedp.KeyEvent(kb.Enter))
	b.want("rows, descending", eval[[]string](b, firstColumn), []string{"2", "4", "16"})
	b.want("aria-sort", eval[string](b, `document.querySelector("`+quest+`").getAttribute("aria-sort")`), "descending")
	b.do(chromedp.Focus(chromedp.CSS("#table-1 table thead th:nth-child(1) button")), chromedp.KeyEvent(" "), chromedp.KeyEvent(" "))
	b.want("rows by their label, descending in the order of the axis", eval[[]string](b, firstColumn), []string{"16", "4", "2"})
	b.do(chromedp.KeyEvent(" "))
	b.want("rows at last", eval[[]string](b, firstColumn), []string{"2", "4", "16"})
	b.want("a table cell of a label", eval[string](b, `document.querySelector("#table-1 th:nth-child(4)").textContent`), hostile)
}

// shown are the values in the legend: of x, then of each curve; "--" without a pointer.
const shown = `[...document.querySelectorAll(".u-legend .u-series:not(.end) .u-value")].map(v => v.textContent)`

// drawn counts the curves that are not hidden.
const drawn = `document.querySelectorAll(".u-legend .u-series:not(.end):not(.u-off)").length - 1`

// over is the area of the curves, without the axes.
const over = ".plot .u-over"

// canvas is the picture of the curves.
const canvas = `document.querySelector(".plot canvas").toDataURL()`

// Values are read under the pointer and by the arrow keys, and are those of the curves.
func testCurves(b *browser) {
	b.do(chromedp.ScrollIntoView(chromedp.CSS(".plot")))
	at := eval[map[string]float64](b, `document.querySelector("`+over+`").getBoundingClientRect().toJSON()`)
	b.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, at["x"]+at["width"]/2, at["y"]+at["height"]/2))
	values := eval[[]string](b, shown)
	if len(values) != 4 || values[0] != "50" || !strings.HasPrefix(values[1], "2.1") || !strings.Contains(values[1], " ± 0.103") {
		b.t.Errorf("in the middle of the curves: %q", values)
	}
	b.want("names in the legend", eval[[]string](b, `[...document.querySelectorAll(".u-legend .u-series:not(.end) .u-label")].map(v => v.textContent)`), []string{"step", "QuEST", "CAGE", hostile})
	b.shoot("hover")
	b.do(chromedp.Focus(chromedp.CSS(over)), chromedp.KeyEvent(kb.Home), chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowRight))
	b.want("two to the right of the first", eval[[]string](b, shown)[0], "3")
	b.do(chromedp.KeyEvent(kb.End))
	values = eval[[]string](b, shown)
	want := eval[string](b, `((s, n) => format(s.y[n - 1]) + " ± " + format(s.high[n - 1] - s.y[n - 1], 3))(JSON.parse(document.querySelector(".chart").textContent).series[1], 100)`)
	b.want("the last value", []string{values[0], values[2]}, []string{"100", want})
	const first, log = ".u-legend .u-series:nth-child(4) th", ".plot .log"
	all := eval[string](b, canvas)
	b.do(chromedp.Click(chromedp.CSS(first)))
	b.want("curves without the first", eval[int](b, drawn), 2)
	b.want("the picture is as it was", eval[string](b, canvas) == all, false)
	b.want("aria-pressed", eval[string](b, `document.querySelector("`+first+`").getAttribute("aria-pressed")`), "false")
	b.do(chromedp.Focus(chromedp.CSS(first)), chromedp.KeyEvent(kb.Enter))
	b.want("curves again", eval[int](b, drawn), 3)
	b.want("the picture is as it was", eval[string](b, canvas) == all, true)
	b.do(chromedp.Click(chromedp.CSS(log)))
	b.want("the picture is as it was", eval[string](b, canvas) == all, false)
	b.want("a linear axis", eval[string](b, `document.querySelector("`+log+`").getAttribute("aria-pressed")`), "false")
}

// Dragging zooms in, Escape out.
func testZoom(b *browser) {
	at := eval[map[string]float64](b, `document.querySelector("`+over+`").getBoundingClientRect().toJSON()`)
	y := at["y"] + at["height"]/2
	b.do(
		chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, at["x"]+at["width"]*0.6, y),
		chromedp.MouseEvent(input.DispatchMouseEventTypeMousePressed, at["x"]+at["width"]*0.6, y, chromedp.ButtonLeft, chromedp.ClickCount(1)),
		chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, at["x"]+at["width"]*0.7, y, chromedp.ButtonLeft),
		chromedp.MouseEvent(input.DispatchMouseEventTypeMouseReleased, at["x"]+at["width"]*0.7, y, chromedp.ButtonLeft, chromedp.ClickCount(1)),
	)
	step := func(key string) (step int) {
		b.t.Helper()
		b.do(chromedp.Focus(chromedp.CSS(over)), chromedp.KeyEvent(key))
		if _, err := fmt.Sscan(eval[[]string](b, shown)[0], &step); err != nil {
			b.t.Fatal(err)
		}
		return step
	}
	if first, last := step(kb.Home), step(kb.End); first < 50 || first > 65 || last < 65 || last > 75 {
		b.t.Errorf("in view are the steps %d to %d", first, last)
	}
	b.do(chromedp.KeyEvent(kb.Escape))
	b.want("the first step again", step(kb.Home), 1)
}

func testFilter(b *browser) {
	count := func(want string) {
		b.t.Helper()
		b.want("count", eval[string](b, `document.getElementById("count").textContent`), want)
	}
	count("19 of 19")
	b.do(chromedp.SendKeys(chromedp.CSS("#filter"), "cage failed"))
	count("1 of 19")
	b.want("details in view", eval[int](b, `[...document.querySelectorAll("details.run")].filter(d => !d.hidden).length`), 1)
	b.do(chromedp.SendKeys(chromedp.CSS("#filter"), "x"))
	count("0 of 19")
	eval[bool](b, `(filter.value = "", applyFilter(), true)`)
	count("19 of 19")
}

// A link in the list of runs unfolds the run.
func testLinks(b *browser) {
	b.want("open at first", eval[int](b, `document.querySelectorAll("details[open]").length`), 0)
	b.do(chromedp.Click(chromedp.CSS(`tr[data-run="run-3"] a`)), chromedp.WaitVisible(chromedp.CSS("#run-3 pre")))
	b.want("open now", eval[[]string](b, `[...document.querySelectorAll("details[open]")].map(d => d.id)`), []string{"run-3"})
	if text := eval[string](b, `document.getElementById("run-3").textContent`); !strings.Contains(text, "seed = 2") || strings.Contains(text, "out = ") {
		b.t.Errorf("run 3 says\n%s", text)
	}
}

func testModes(b *browser) {
	const paper, ink = `getComputedStyle(document.body).backgroundColor`, `getComputedStyle(document.body).color`
	mode := func(media, scheme string) {
		b.t.Helper()
		call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: media, Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	}
	mode("screen", "light")
	light, curves := eval[string](b, paper), eval[string](b, canvas)
	mode("screen", "dark")
	for began := time.Now(); eval[string](b, canvas) == curves; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > limit {
			b.t.Fatal("on dark paper the curves are drawn as on light paper")
		}
	}
	if dark := eval[string](b, paper); dark == light || eval[string](b, ink) == light {
		b.t.Errorf("dark paper %s, light paper %s", dark, light)
	}
	mode("print", "dark")
	b.want("paper in print", eval[string](b, paper), light)
	b.want("pictures of curves in print", eval[[]string](b, `[".plot", ".printed"].map(e => getComputedStyle(document.querySelector(e)).display)`), []string{"none", "block"})
	b.want("navigation in print", eval[string](b, `getComputedStyle(document.querySelector("nav")).display`), "none")
	for _, m := range [][2]string{{"screen", "light"}, {"screen", "dark"}, {"print", "light"}} {
		mode(m[0], m[1])
		b.shoot(m[0] + "-" + m[1])
	}
}

// shoot keeps a picture of the page, for a person who gives a directory for it.
func (b *browser) shoot(name string) {
	b.t.Helper()
	dir := os.Getenv("CAGE_SCREENSHOTS")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}
