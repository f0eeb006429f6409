package plugin

import (
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"github.com/cage-qat/cage/internal/digest"
	"github.com/cage-qat/cage/internal/regular"
)

// Executable is a plugin that was found and can be started.
type Executable struct {
	// Name is what the user calls it: its name, or the path that was given.
	Name string
	// Path is the absolute path of the executable file.
	Path string
}

// checksum hashes the file and compares it with the pinned hash, if any.
func checksum(path, pinned string) (string, error) {
	f, err := regular.Open(path)
	if err != nil {
		return "", &Error{Kind: ErrNotFound, Err: err}
	}
	defer f.Close()
	h := digest.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", &Error{Kind: ErrNotFound, Err: fmt.Errorf("read %s: %w", path, err)}
	}
	sum := hex.EncodeToString(h.Sum(nil))
	if pinned != "" && !strings.EqualFold(pinned, sum) {
		return "", failure(ErrChecksum, "its SHA-256 is %s, but %s is pinned: take the plugin that was meant, or change sha256 in the TOML file", sum, pinned)
	}
	return sum, nil
}
