package plugin

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/effort"
	"github.com/cage-qat/cage/sdk"
)

// With a plugin that knows how, the connection is encrypted and both sides prove who
// they are; others work without.
func TestConnectionIsEncrypted(t *testing.T) {
	effort.Long(t, "starts several plugins")
	for behaviour, want := range map[string]bool{"quantizer": true, "plain-grpc": false} {
		c := start(t, behaviour, sdk.KindQuantizer, Options{})
		if _, err := c.Quantize(t.Context(), site("")); err != nil {
			t.Errorf("%s: %v", behaviour, err)
		}
		if got := c.launch.certified.Load(); got != want {
			t.Errorf("%s: encrypted %v, want %v", behaviour, got, want)
		}
	}
}

// Only the user can enter the directory of the socket, wherever temporary files lie.
func TestSocketDirectoryIsPrivate(t *testing.T) {
	effort.Long(t, "starts several plugins")
	long := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	if err := os.Mkdir(long, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{os.TempDir(), long} {
		t.Setenv("TMPDIR", dir)
		log := &logBuffer{}
		start(t, "tells-socket", sdk.KindQuantizer, Options{Logger: log.logger()}).Close()
		said := regexp.MustCompile(`socket directory (\S+), (\d+) bytes`).FindStringSubmatch(log.String())
		if said == nil {
			t.Fatalf("the log is %q", log)
		}
		if length, err := strconv.Atoi(said[2]); err != nil || length > 85 || said[1] != "drwx------" {
			t.Errorf("TMPDIR %.60s: the directory is %s, of %s bytes", dir, said[1], said[2])
		}
	}
}
