package metrics

import (
	"bytes"
	"cmp"
)

// Parse is Read for the content of a file.
func Parse(data []byte) (list []Record, err error) {
	for line, err := range lines[Record](bytes.NewReader(data)) {
		if err = cmp.Or(err, line.damage); err != nil {
			return nil, err
		}
		list = append(list, line.entry)
	}
	return list, nil
}
