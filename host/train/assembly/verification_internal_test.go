package assembly

import (
	"testing"
	"time"
)

// TestVerificationPauses: a verification pauses for the training until somebody waits for
// it or closes it.
func TestVerificationPauses(t *testing.T) {
	for name, end := range map[string]func(*Verification){
		"wait":  func(v *Verification) { _ = v.Wait() },
		"close": (*Verification).Close,
	} {
		t.Run(name, func(t *testing.T) {
			v := VerifyFiles()
			paused := make(chan struct{})
			go func() {
				v.pause(time.Hour)
				close(paused)
			}()
			select {
			case <-paused:
				t.Fatal("it did not pause")
			case <-time.After(10 * time.Millisecond):
			}
			end(v)
			<-paused
		})
	}
}
