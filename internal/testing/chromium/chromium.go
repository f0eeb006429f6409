// Package chromium finds the Chromium executable that tests pages and takes screenshots for the
// documentation. It does not drive the browser itself.
package chromium

import (
	"os/exec"

	"github.com/chromedp/chromedp"
)

// Missing is the message for a missing Chromium.
const Missing = "there is no Chromium here (Debian: apt install chromium)"

// Options returns options that start a headless Chromium on this machine; ok is false if none is
// installed.
func Options() (options []chromedp.ExecAllocatorOption, ok bool) {
	names := []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}
	for _, name := range names {
		if program, err := exec.LookPath(name); err == nil {
			return append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program),
				chromedp.NoSandbox, chromedp.DisableGPU), true
		}
	}
	return nil, false
}
