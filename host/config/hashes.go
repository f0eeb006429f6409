package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Hashes returns the expected hashes of the token ids by the paths of their files, those of
// the training set together. Hashes that are not known are left out.
func (d *Data) Hashes() map[string]string {
	hashes := map[string]string{strings.Join(d.Files(), ", "): d.TrainSHA256, d.Validation: d.ValidationSHA256}
	maps.DeleteFunc(hashes, func(_, hash string) bool { return hash == "" })
	return hashes
}

// ChangedData says which token files hold something else now, of [Data.Hashes] as
// recorded and as they are; empty: none that both have.
func ChangedData(recorded, now map[string]string) string {
	for _, path := range slices.Sorted(maps.Keys(recorded)) {
		if hash, ok := now[path]; ok && hash != recorded[path] {
			return fmt.Sprintf("%s holds other tokens now: their SHA-256 is %.12s…, was %.12s…", path, hash, recorded[path])
		}
	}
	return ""
}
