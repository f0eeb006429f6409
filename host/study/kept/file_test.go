package kept_test

import (
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/study/kept"
)

// TestReadRefuses: files that are damaged, or that this version does not know.
func TestReadRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	const sources = `"sources": [{"date": "d", "revision": "r", "builds": null, "plugins": null}]`
	for text, want := range map[string]string{
		`{"study": "s", "more": 1}`: "more: unknown key",
		`{"cells": []}`:             "names no study",
		`{"study": "s"} {}`:         "something follows",
		`{"study": "s", ` + sources + `, "cells": [{"source": 0}]}`:                                          "has no ID",
		`{"study": "s", ` + sources + `, "cells": [{"id": "a", "source": -1}]}`:                              "has the source -1",
		`{"study": "s", ` + sources + `, "cells": [{"id": "a", "source": 1}]}`:                               "has the source 1, and there are 1",
		`{"study": "s", ` + sources + `, "cells": [{"id": "x-a", "source": 0}, {"id": "y-a", "source": 0}]}`: "stands there twice",
	} {
		write(t, "kept.json", text)
		if _, err := kept.Read("kept.json"); err == nil || !strings.HasPrefix(err.Error(), "kept.json: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
