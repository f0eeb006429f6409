// Command screenshot saves a screenshot of a web page as shown on a desktop or a phone, in light or
// dark mode. It needs Chromium. scripts/pictures.sh uses it for the pictures in docs.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/testing/chromium"
	"github.com/cage-qat/cage/internal/vfs"
)

// page describes the screenshot to take.
type page struct {
	url, out, wait, do string
	width, height      int64
	scale              float64
	dark, phone        bool
}

func main() {
	var p page
	flag.StringVar(&p.out, "out", "", "`FILE` for the picture (PNG)")
	flag.StringVar(&p.wait, "wait", "true",
		"JavaScript `EXPRESSION` that is true when the page is ready")
	flag.StringVar(&p.do, "do", "true",
		"JavaScript `EXPRESSION` that is evaluated then, to scroll for example")
	flag.Int64Var(&p.width, "width", 1000, "of the window, in CSS pixels")
	flag.Int64Var(&p.height, "height", 700, "of the window, in CSS pixels")
	flag.Float64Var(&p.scale, "scale", 1, "pixels of the picture per CSS pixel")
	flag.BoolVar(&p.dark, "dark", false, "prefer dark colours")
	flag.BoolVar(&p.phone, "phone", false,
		"emulate a phone: the layout follows the width of the window")
	flag.Parse()
	p.url = flag.Arg(0)
	if err := p.save(); err != nil {
		fmt.Fprintln(os.Stderr, "screenshot:", err)
		os.Exit(1)
	}
}

// save opens the page, waits until it is ready, and saves the screenshot.
func (p page) save() error {
	if p.url == "" || p.out == "" {
		return errors.New("usage: screenshot --out FILE.png [flags] URL")
	}
	options, ok := chromium.Options()
	if !ok {
		return errors.New(chromium.Missing)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	defer cancel()
	ctx, cancel = chromedp.NewContext(ctx)
	defer cancel()
	if err := p.emulate(ctx); err != nil {
		return err
	}
	if err := chromedp.Do(ctx, chromedp.Navigate(p.url)); err != nil {
		return err
	}
	for {
		if ready, err := chromedp.Run(ctx, chromedp.Evaluate[bool](p.wait)); err != nil {
			return fmt.Errorf("waiting for %s: %w", p.wait, err)
		} else if ready {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[any](p.do)); err != nil {
		return fmt.Errorf("%s: %w", p.do, err)
	}
	time.Sleep(500 * time.Millisecond) // for scrolling and transitions
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(vfs.At(p.out), png)
}

// emulate sets the window's size and colour scheme.
func (p page) emulate(ctx context.Context) error {
	scheme := "light"
	if p.dark {
		scheme = "dark"
	}
	_, size := chromedp.Call(ctx, emulation.SetDeviceMetricsOverride,
		emulation.SetDeviceMetricsOverrideParams{
			Width: p.width, Height: p.height, DeviceScaleFactor: p.scale, Mobile: p.phone})
	_, colours := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	return cmp.Or(size, colours)
}
