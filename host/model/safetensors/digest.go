package safetensors

import (
	"crypto/sha256"
	"encoding/json/v2"
	"fmt"
	"maps"
	"strings"

	"github.com/cage-qat/cage/internal/plainjson"
)

// Write adds digests to the metadata of a file, all of them SHA-256 in hexadecimal, which the
// reader checks. A program that changes such a file must remove these entries.
const (
	// TensorDigestsKey is the entry that holds a JSON object with the digest of the data
	// of each tensor, by its name.
	TensorDigestsKey = "tensor_sha256"
	// HeaderDigestKey is the entry that holds the digest of the header: of the file up to the data,
	// with '0' characters in place of this digest. As the header holds the digests of the tensors,
	// any change of the file changes a digest.
	HeaderDigestKey = "header_sha256"
)

// noDigest is a placeholder for a digest that is not known yet.
var noDigest = strings.Repeat("0", sha256.Size*2)

// digests holds the digests in a file; both are empty in files of other programs.
type digests struct {
	ofHeader  string
	ofTensors map[string]string // by name
}

func extractDigests(metadata map[string]string) (d digests, err error) {
	header, hasHeader := metadata[HeaderDigestKey]
	list, hasTensors := metadata[TensorDigestsKey]
	switch {
	case hasHeader != hasTensors:
		return d, fmt.Errorf("found one of %s and %s, want both or neither",
			HeaderDigestKey, TensorDigestsKey)
	case !hasHeader:
		return d, nil
	case len(header) != len(noDigest):
		return d, fmt.Errorf("%s is %q, want a SHA-256 in hexadecimal", HeaderDigestKey, header)
	}
	d = digests{header, map[string]string{}}
	if err := json.Unmarshal([]byte(list), &d.ofTensors); err != nil {
		return d, fmt.Errorf("%s: %w", TensorDigestsKey, plainjson.Explain([]byte(list), err))
	}
	maps.DeleteFunc(metadata, func(key, _ string) bool { return isDigestKey(key) })
	return d, nil
}

func isDigestKey(key string) bool {
	return key == HeaderDigestKey || key == TensorDigestsKey
}

func hexDigest(data []byte) string {
	return fmt.Sprintf("%x", sha256.Sum256(data))
}

func checkDigest(got, want string) error {
	if got != want {
		return fmt.Errorf("%w: the content has the SHA-256 %s, want %s", ErrChecksum, got, want)
	}
	return nil
}
