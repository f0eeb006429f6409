// Package chromium finds the browser in which pages are tested and of which pictures for docs
// are made. What is done with it is up to its users.
package chromium

import (
	"os/exec"

	"github.com/chromedp/chromedp"
)

// Missing says that there is none.
const Missing = "there is no Chromium here (Debian: apt install chromium)"

// Options start a headless Chromium of this machine; ok is false where there is none.
func Options() (options []chromedp.ExecAllocatorOption, ok bool) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if program, err := exec.LookPath(name); err == nil {
			return append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU), true
		}
	}
	return nil, false
}
