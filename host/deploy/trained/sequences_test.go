package trained

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/deploy/tasks"
)

// FuzzSequences checks that a line of "score --ids" is refused, or is a list of valid ids that is
// the same after it is written again, and that no text causes a panic.
func FuzzSequences(f *testing.F) {
	for _, seed := range []string{"[1, 2]", "[1,400]", "[1,2.5]", `[1,"2"]`, "[]", "[1,2", "[1,,2]",
		"[1,2] x", "null", `"one two"`, `"\ud800"`, "\xef\xbb\xbf[1,2]\n[3,4]"} {
		f.Add([]byte(seed))
	}
	const vocab, most = 300, 8
	bytes := &tasks.Encoder{Encode: tokenizer.Bytes{}.Encode, BOS: 7}
	f.Fuzz(func(t *testing.T, input []byte) {
		_, _ = (&Reader{Vocab: vocab, MaxTokens: most, Encoder: bytes}).
			Read(strings.NewReader(string(input)))
		ids := &Reader{Vocab: vocab, MaxTokens: most}
		list, err := ids.Read(strings.NewReader(string(input)))
		if err != nil {
			return
		}
		var again strings.Builder
		for _, sequence := range list {
			if len(sequence) < 2 || len(sequence) > most || slices.Min(sequence) < 0 ||
				slices.Max(sequence) >= vocab {
				t.Fatalf("%q gives %v", input, sequence)
			}
			text, _ := json.Marshal(sequence)
			fmt.Fprintf(&again, "%s\n", text)
		}
		if same, err := ids.Read(strings.NewReader(again.String())); err != nil ||
			!reflect.DeepEqual(same, list) {
			t.Fatalf("%q gives %v, and written again %v, %v", input, list, same, err)
		}
	})
}
