package sdk

import (
	"io"
	"os"
	"time"

	"github.com/cage-qat/cage/sdk/internal/wire"
)

// parentPoll is the time after which a plugin checks again that its parent is still the same.
const parentPoll = 500 * time.Millisecond

// watchHost ends the process when the host is gone, however the host ended. The sign of
// this is that the pipe on standard input closes. If another process still holds the pipe
// open, the sign is that the plugin gets another parent.
func watchHost() {
	if os.Getenv(wire.LifelineKey) == wire.LifelineStdin {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
	}
	go func() {
		for parent := os.Getppid(); ; time.Sleep(parentPoll) {
			if os.Getppid() != parent {
				os.Exit(0)
			}
		}
	}()
}
