package report_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/cage-qat/cage/host/study/report"
	"github.com/cage-qat/cage/internal/testing/testbrowser"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/vfs"
)

// saved writes the report of the study in fixture_test.go, and returns the path of its page.
func saved(t *testing.T) string {
	t.Helper()
	s := parse(t, grid, t.TempDir())
	results(t, s)
	r := reportOf(t, s)
	dir := t.TempDir()
	if _, err := r.Save(vfs.At(dir)); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, report.PageFile)
}

const firstColumn = `[...document.querySelectorAll("#table-1 table")[0].tBodies[0].rows].map(r => r.cells[0].textContent)`

func TestPageInABrowser(t *testing.T) {
	testlevel.Long(t, "starts a browser")
	page := "file://" + saved(t)
	b := testbrowser.Open(t, page, func(url string) bool { return url == page })
	t.Run("sort", func(t *testing.T) { b.T = t; testSort(b) })
	t.Run("curves", func(t *testing.T) { b.T = t; testCurves(b) })
	t.Run("looks", func(t *testing.T) { b.T = t; testLooks(b) })
	t.Run("zoom", func(t *testing.T) { b.T = t; testZoom(b) })
	t.Run("filter", func(t *testing.T) { b.T = t; testFilter(b) })
	t.Run("links", func(t *testing.T) { b.T = t; testLinks(b) })
	t.Run("modes", func(t *testing.T) { b.T = t; testModes(b) })
	for _, c := range b.Complaints() {
		t.Error(c)
	}
}

// testSort sorts tables by pointer and by keyboard; a third time restores the order.
func testSort(b *testbrowser.Browser) {
	const quest = `#table-1 table thead th:nth-child(2)`
	b.Want("rows at first", testbrowser.Eval[[]string](b, firstColumn), []string{"2", "4", "16"})
	b.Do(chromedp.Click(chromedp.CSS(quest + " button")))
	b.Want("rows by the mean of QuEST, what is missing last",
		testbrowser.Eval[[]string](b, firstColumn), []string{"4", "2", "16"})
	b.Want("aria-sort", testbrowser.Eval[string](b,
		`document.querySelector("`+quest+`").getAttribute("aria-sort")`), "ascending")
	b.Do(chromedp.Focus(chromedp.CSS(quest+" button")), chromedp.KeyEvent(kb.Enter))
	b.Want("rows, descending", testbrowser.Eval[[]string](b, firstColumn), []string{"2", "4", "16"})
	b.Want("aria-sort", testbrowser.Eval[string](b,
		`document.querySelector("`+quest+`").getAttribute("aria-sort")`), "descending")
	b.Do(chromedp.Focus(chromedp.CSS("#table-1 table thead th:nth-child(1) button")),
		chromedp.KeyEvent(" "), chromedp.KeyEvent(" "))
	b.Want("rows by their label, descending in the order of the axis",
		testbrowser.Eval[[]string](b, firstColumn), []string{"16", "4", "2"})
	b.Do(chromedp.KeyEvent(" "))
	b.Want("rows at last", testbrowser.Eval[[]string](b, firstColumn), []string{"2", "4", "16"})
	b.Want("a table cell of a label",
		testbrowser.Eval[string](b, `document.querySelector("#table-1 th:nth-child(4)").textContent`),
		hostile)
}

// shown is a script for the values in the legend: x, then one per curve; "--" without a pointer.
const shown = `[...document.querySelectorAll(".u-legend .u-series:not(.end) .u-value")].map(v => v.textContent)`

// drawn is a script that counts the visible curves.
const drawn = `document.querySelectorAll(".u-legend .u-series:not(.end):not(.u-off)").length - 1`

// over is the CSS selector of the area of the curves, without the axes.
const over = ".plot .u-over"

// canvas is a script for the image of the curves.
const canvas = `document.querySelector(".plot canvas").toDataURL()`

// testCurves checks the values that are shown under the pointer and for the arrow keys.
func testCurves(b *testbrowser.Browser) {
	b.Do(chromedp.ScrollIntoView(chromedp.CSS(".plot")))
	at := testbrowser.Eval[map[string]float64](b,
		`document.querySelector("`+over+`").getBoundingClientRect().toJSON()`)
	b.Do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, at["x"]+at["width"]/2,
		at["y"]+at["height"]/2))
	values := testbrowser.Eval[[]string](b, shown)
	if len(values) != 4 || values[0] != "50" || !strings.HasPrefix(values[1], "2.1") ||
		!strings.Contains(values[1], " ± 0.103") {
		b.T.Errorf("in the middle of the curves: %q", values)
	}
	b.Want("names in the legend",
		testbrowser.Eval[[]string](b,
			`[...document.querySelectorAll(".u-legend .u-series:not(.end) .u-label")].map(v => v.textContent)`), []string{"step", "QuEST", "CAGE", hostile})
	b.Shoot("hover")
	b.Do(chromedp.Focus(chromedp.CSS(over)), chromedp.KeyEvent(kb.Home),
		chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowRight))
	b.Want("two to the right of the first", testbrowser.Eval[[]string](b, shown)[0], "3")
	b.Do(chromedp.KeyEvent(kb.End))
	values = testbrowser.Eval[[]string](b, shown)
	want := testbrowser.Eval[string](b,
		`((s, n) => format(s.y[n - 1]) + " ± " + format(s.high[n - 1] - s.y[n - 1], 3))(JSON.parse(document.querySelector(".chart").textContent).series[1], 100)`)
	b.Want("the last value", []string{values[0], values[2]}, []string{"100", want})
	const first, log = ".u-legend .u-series:nth-child(4) th", ".plot .log"
	all := testbrowser.Eval[string](b, canvas)
	b.Do(chromedp.Click(chromedp.CSS(first)))
	b.Want("curves without the first", testbrowser.Eval[int](b, drawn), 2)
	b.Want("the picture is as it was", testbrowser.Eval[string](b, canvas) == all, false)
	b.Want("aria-pressed",
		testbrowser.Eval[string](b, `document.querySelector("`+first+`").getAttribute("aria-pressed")`),
		"false")
	b.Do(chromedp.Focus(chromedp.CSS(first)), chromedp.KeyEvent(kb.Enter))
	b.Want("curves again", testbrowser.Eval[int](b, drawn), 3)
	b.Want("the picture is as it was", testbrowser.Eval[string](b, canvas) == all, true)
	b.Do(chromedp.Click(chromedp.CSS(log)))
	b.Want("the picture is as it was", testbrowser.Eval[string](b, canvas) == all, false)
	b.Want("a linear axis",
		testbrowser.Eval[string](b, `document.querySelector("`+log+`").getAttribute("aria-pressed")`),
		"false")
}

// testLooks checks that a curve can have the dash pattern of another index, and that the legend has
// no ± for a curve without a band, whatever its values.
func testLooks(b *testbrowser.Browser) {
	const series = `options({ x: "", y: "", series: [{ x: [1], y: [-2], low: [], high: [], dash: 11 }] }, false, 400, 300).series`
	b.Want("the third kind of line", testbrowser.Eval[[]int](b, series+`[3].dash`), []int{3, 3})
	b.Want("a negative value",
		testbrowser.Eval[string](b,
			series+`[3].value({ data: [[1], [null], [null], [-2]], cursor: { idx: 0 } }, -2, 3, 0)`), "−2")
}

// testZoom checks that dragging zooms in, and Escape zooms out.
func testZoom(b *testbrowser.Browser) {
	at := testbrowser.Eval[map[string]float64](b,
		`document.querySelector("`+over+`").getBoundingClientRect().toJSON()`)
	y := at["y"] + at["height"]/2
	b.Do(
		chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, at["x"]+at["width"]*0.6, y),
		chromedp.MouseEvent(input.DispatchMouseEventTypeMousePressed, at["x"]+at["width"]*0.6, y,
			chromedp.ButtonLeft, chromedp.ClickCount(1)),
		chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, at["x"]+at["width"]*0.7, y,
			chromedp.ButtonLeft),
		chromedp.MouseEvent(input.DispatchMouseEventTypeMouseReleased, at["x"]+at["width"]*0.7, y,
			chromedp.ButtonLeft, chromedp.ClickCount(1)),
	)
	step := func(key string) (step int) {
		b.T.Helper()
		b.Do(chromedp.Focus(chromedp.CSS(over)), chromedp.KeyEvent(key))
		if _, err := fmt.Sscan(testbrowser.Eval[[]string](b, shown)[0], &step); err != nil {
			b.T.Fatal(err)
		}
		return step
	}
	if first, last := step(kb.Home), step(kb.End); first < 50 || first > 65 || last < 65 || last > 75 {
		b.T.Errorf("in view are the steps %d to %d", first, last)
	}
	b.Do(chromedp.KeyEvent(kb.Escape))
	b.Want("the first step again", step(kb.Home), 1)
}

func testFilter(b *testbrowser.Browser) {
	count := func(want string) {
		b.T.Helper()
		b.Want("count", testbrowser.Eval[string](b, `document.getElementById("count").textContent`), want)
	}
	count("19 of 19")
	b.Do(chromedp.SendKeys(chromedp.CSS("#filter"), "cage failed"))
	count("1 of 19")
	b.Want("details in view",
		testbrowser.Eval[int](b,
			`[...document.querySelectorAll("details.run")].filter(d => !d.hidden).length`), 1)
	b.Do(chromedp.SendKeys(chromedp.CSS("#filter"), "x"))
	count("0 of 19")
	testbrowser.Eval[bool](b, `(filter.value = "", applyFilter(), true)`)
	count("19 of 19")
}

// testLinks checks that a link in the list of runs opens the details of the run.
func testLinks(b *testbrowser.Browser) {
	b.Want("open at first",
		testbrowser.Eval[int](b, `document.querySelectorAll("details[open]").length`), 0)
	b.Do(chromedp.Click(chromedp.CSS(`tr[data-run="run-3"] a`)),
		chromedp.WaitVisible(chromedp.CSS("#run-3 pre")))
	b.Want("open now", testbrowser.Eval[[]string](b,
		`[...document.querySelectorAll("details[open]")].map(d => d.id)`), []string{"run-3"})
	if text := testbrowser.Eval[string](b,
		`document.getElementById("run-3").textContent`); !strings.Contains(text, "seed = 2") ||
		strings.Contains(text, "out = ") {
		b.T.Errorf("run 3 says\n%s", text)
	}
}

func testModes(b *testbrowser.Browser) {
	const paper, ink = `getComputedStyle(document.body).backgroundColor`, `getComputedStyle(document.body).color`
	b.Mode("screen", "light")
	light, curves := testbrowser.Eval[string](b, paper), testbrowser.Eval[string](b, canvas)
	b.Mode("screen", "dark")
	b.Await("on dark paper the curves are drawn as on light paper",
		fmt.Sprintf("%s !== %q", canvas, curves))
	if dark := testbrowser.Eval[string](b, paper); dark == light ||
		testbrowser.Eval[string](b, ink) == light {
		b.T.Errorf("dark paper %s, light paper %s", dark, light)
	}
	b.Mode("print", "dark")
	b.Want("paper in print", testbrowser.Eval[string](b, paper), light)
	b.Want("pictures of curves in print",
		testbrowser.Eval[[]string](b,
			`[".plot", ".printed"].map(e => getComputedStyle(document.querySelector(e)).display)`),
		[]string{"none", "block"})
	b.Want("navigation in print",
		testbrowser.Eval[string](b, `getComputedStyle(document.querySelector("nav")).display`), "none")
	for _, m := range [][2]string{{"screen", "light"}, {"screen", "dark"}, {"print", "light"}} {
		b.Mode(m[0], m[1])
		b.Shoot(m[0] + "-" + m[1])
	}
}
