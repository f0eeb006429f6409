package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Hashes returns the expected hashes of the token ids, by the paths of their files; the
// files of the training set have one hash together. Unknown hashes are left out.
func (d *Data) Hashes() map[string]string {
	hashes := map[string]string{strings.Join(d.Files(), ", "): d.TrainSHA256, d.Validation: d.ValidationSHA256}
	maps.DeleteFunc(hashes, func(_, hash string) bool { return hash == "" })
	return hashes
}

// ChangedData describes a token file whose content has changed, according to
// [Data.Hashes] as recorded and as they are now. It is empty if no file in both has
// changed.
func ChangedData(recorded, now map[string]string) string {
	for _, path := range slices.Sorted(maps.Keys(recorded)) {
		if hash, ok := now[path]; ok && hash != recorded[path] {
			return fmt.Sprintf("%s holds other tokens now: their SHA-256 is %.12s…, was %.12s…", path, hash, recorded[path])
		}
	}
	return ""
}
