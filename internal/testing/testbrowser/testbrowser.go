// Package testbrowser opens pages in a headless Chromium for tests. It collects a page's
// violations: forbidden requests, errors, warnings and console output.
package testbrowser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/internal/testing/chromium"
)

// Browser is a page in Chromium with its violations.
type Browser struct {
	T          testing.TB
	ctx        context.Context
	lock       sync.Mutex
	complaints []string
}

// Open opens a page in a headless Chromium of 1200 × 900 pixels. It skips the test if there is no
// Chromium. may reports whether the page may request an address.
func Open(t testing.TB, url string, may func(url string) bool) *Browser {
	t.Helper()
	options, ok := chromium.Options()
	if !ok {
		t.Skip("SKIPPED: " + chromium.Missing + ", so that the page is not tested in a browser")
	}
	options = append(options, chromedp.WindowSize(1200, 900), chromedp.UserDataDir(t.TempDir()))
	allocator, stopAllocator := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stopAllocator)
	ctx, stop := chromedp.NewContext(allocator)
	t.Cleanup(stop)
	t.Cleanup(func() { _ = chromedp.Cancel(ctx) }) // waits until its directory is unused
	b := &Browser{T: t, ctx: ctx}
	if err := chromedp.Listen(ctx, func(event any) { b.listen(event, may) }); err != nil {
		t.Fatal(err)
	}
	Call(b, network.Enable, network.EnableParams{})
	Call(b, log.Enable, cdp.Empty{})
	Call(b, runtime.Enable, cdp.Empty{})
	b.Do(chromedp.Navigate(url))
	return b
}

// Limit is the time limit for one action. It is ample even on a busy machine.
const Limit = time.Minute

// listen collects violations. A dialog would block the page, so that the next action would exceed
// its time limit.
func (b *Browser) listen(event any, may func(url string) bool) {
	b.lock.Lock()
	defer b.lock.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if url, _, _ := strings.Cut(e.Request.URL, "#"); !may(url) && !strings.HasPrefix(url, "data:") {
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

// Complaints returns the violations since the last call.
func (b *Browser) Complaints() []string {
	b.lock.Lock()
	defer b.lock.Unlock()
	list := b.complaints
	b.complaints = nil
	return list
}

// Do performs actions. It fails the test on an error.
func (b *Browser) Do(actions ...chromedp.Action[chromedp.Void]) {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, Limit)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.T.Fatal(err)
	}
}

// Call runs a command of the Chrome DevTools Protocol.
func Call[P, R any](b *Browser, command cdp.Command[P, R], params P) {
	b.T.Helper()
	if _, err := chromedp.Call(b.ctx, command, params); err != nil {
		b.T.Fatal(err)
	}
}

// Eval returns the value of a JavaScript expression.
func Eval[T any](b *Browser, expression string) T {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, Limit)
	defer cancel()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.T.Fatalf("%s: %v", expression, err)
	}
	return out
}

// Await waits until a JavaScript expression is true.
func (b *Browser) Await(what, expression string) {
	b.T.Helper()
	for began := time.Now(); !Eval[bool](b, expression); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > Limit {
			b.T.Fatal(what)
		}
	}
}

// Want fails the test if got differs from want.
func (b *Browser) Want(what string, got, want any) {
	b.T.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		b.T.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Mode emulates the medium "screen" or "print" and the colour scheme "light" or "dark".
func (b *Browser) Mode(medium, scheme string) {
	b.T.Helper()
	Call(b, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Media: medium,
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}

// Shoot saves a screenshot if CAGE_SCREENSHOTS names a directory.
func (b *Browser) Shoot(name string) {
	b.T.Helper()
	dir := os.Getenv("CAGE_SCREENSHOTS")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.T.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		b.T.Fatal(err)
	}
}
