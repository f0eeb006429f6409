// Package chromium finds the Chromium executable for testing pages and taking screenshots for the
// documentation. It does not control the browser.
package chromium

import (
	"os/exec"

	"github.com/chromedp/chromedp"
)

// Missing is the message for tests that need Chromium if it is not installed.
const Missing = "there is no Chromium here (Debian: apt install chromium)"

// Options returns options that start a headless Chromium; ok is false if none is installed.
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
