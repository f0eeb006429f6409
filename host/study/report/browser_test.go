package report_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/cage-qat/cage/host/study/report"
	"github.com/cage-qat/cage/internal/vfs"
)

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
