package dataset

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/cage-qat/cage/host/data/tokenizer"
)

func testHeader() Header {
	return Header{
		TokenBytes: 2,
		Tokens:     10,
		Documents:  2,
		Origin:     Origin{Tokenizer: tokenizer.Bytes{}.Info()},
		SHA256:     strings.Repeat("0f", 32),
	}
}

func TestHeaderRoundTrip(t *testing.T) {
	want := testHeader()
	block, err := want.encode()
	if err != nil {
		t.Fatal(err)
	}
	if len(block) != headerSize {
		t.Fatalf("header block has %d bytes", len(block))
	}
	got, err := parseHeader(block, headerSize+20)
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestHeaderTooLong(t *testing.T) {
	h := testHeader()
	h.Tokenizer.Name = strings.Repeat("n", headerSize)
	if _, err := h.encode(); err == nil || !strings.Contains(err.Error(), "shorten the name") {
		t.Errorf("error %v", err)
	}
}

func TestParseHeaderRefuses(t *testing.T) {
	const payload = 20
	edit := func(change func(*Header)) []byte {
		h := testHeader()
		change(&h)
		block, err := h.encode()
		if err != nil {
			t.Fatal(err)
		}
		return block
	}
	raw := func(change func([]byte)) []byte {
		block := edit(func(*Header) {})
		change(block)
		return block
	}
	text := func(s string) []byte {
		return raw(func(b []byte) {
			clear(b[textOffset:])
			copy(b[textOffset:], s)
			binary.LittleEndian.PutUint32(b[12:], uint32(len(s)))
		})
	}
	tests := map[string]struct {
		block []byte
		size  int64
		want  string
	}{
		"empty file":    {nil, 0, "want a header of 4096"},
		"half a header": {make([]byte, 100), 100, "want a header of 4096"},
		"magic": {raw(func(b []byte) { b[0] = 'X' }), headerSize + payload,
			"not a token file"},
		"bytes behind": {raw(func(b []byte) { b[headerSize-1] = 1 }), headerSize + payload,
			"not followed by zeros"},
		"version": {raw(func(b []byte) { b[8] = 9 }), headerSize + payload,
			"format version 9, this program reads version 3"},
		"text length": {raw(func(b []byte) { b[15] = 0xff }), headerSize + payload,
			"want at most 4080"},
		"no text":       {text(""), headerSize + payload, "header text"},
		"no object":     {text("[]"), headerSize + payload, "header text"},
		"unknown field": {text(`{"colour":1}`), headerSize + payload, "colour: unknown key"},
		"two objects":   {text(`{}{}`), headerSize + payload, "after top-level value"},
		"empty object":  {text(`{}`), headerSize + payload, "vocab_size 0"},
		"truncated":     {edit(func(*Header) {}), headerSize + payload - 1, "truncated"},
		"too long": {edit(func(*Header) {}), headerSize + payload + 2,
			"truncated or unfinished"},
		"tokens overflow": {edit(func(h *Header) { h.Tokens = 1<<62 + 10; h.TokenBytes = 2 }),
			headerSize + payload, "truncated"},
		"negative tokens": {edit(func(h *Header) { h.Tokens = -10 }), headerSize + payload,
			"truncated"},
		"no width": {edit(func(h *Header) { h.TokenBytes = 0 }), headerSize + payload,
			"token_bytes 0, want 2"},
		"width of vocab": {edit(func(h *Header) { h.Tokenizer.VocabSize = 1 << 17 }), headerSize +
			payload, "token_bytes 2, want 4"},
		"negative vocab": {edit(func(h *Header) { h.Tokenizer.VocabSize = -1 }), headerSize + payload,
			"vocab_size -1"},
		"bos": {edit(func(h *Header) { h.Tokenizer.BOS = 256 }), headerSize + payload,
			"bos 256"},
		"documents": {edit(func(h *Header) { h.Documents = -1 }), headerSize + payload,
			"documents -1"},
		"hash": {edit(func(h *Header) { h.SHA256 = "abc" }), headerSize + payload,
			"64 hexadecimal digits"},
		"hash of tokenizer": {edit(func(h *Header) { h.Tokenizer.SHA256 = strings.Repeat("Z", 64) }),
			headerSize + payload, "64 hexadecimal digits"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parseHeader(test.block, test.size)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// FuzzParseHeader checks that no bytes make the parser panic, and that an accepted header fits the
// file and survives a round trip. The block is given in two parts, so that the fuzzer does not
// change the zeros after the text.
func FuzzParseHeader(f *testing.F) {
	h := testHeader()
	block, err := h.encode()
	if err != nil {
		f.Fatal(err)
	}
	fixed, text := block[:textOffset], bytes.TrimRight(block[textOffset:], "\x00")
	f.Add(fixed, text, int64(headerSize+20))
	f.Add(fixed, bytes.Replace(text, []byte(`"tokens":10`), []byte(`"tokens":1e1`), 1),
		int64(headerSize+20))
	f.Add(fixed[:5], []byte(nil), int64(5))
	h.Template, h.TemplateSHA256 = "chatml", h.SHA256
	conversations, err := h.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(conversations[:textOffset], bytes.TrimRight(conversations[textOffset:], "\x00"),
		headerSize+h.idBytes()+h.maskBytes()+h.indexBytes())
	f.Fuzz(func(t *testing.T, fixed, text []byte, size int64) {
		block := make([]byte, headerSize)
		copy(block, fixed)
		copy(block[textOffset:], text)
		h, err := parseHeader(block, size)
		if err != nil {
			return
		}
		if headerSize+h.idBytes()+h.maskBytes()+h.indexBytes() != size {
			t.Fatalf("%+v accepted for a file of %d bytes", h, size)
		}
		again, err := h.encode()
		if err != nil {
			t.Skip("a name that needs more room when escaped")
		}
		if back, err := parseHeader(again, size); err != nil || back != h {
			t.Fatalf("%+v became %+v, %v", h, back, err)
		}
	})
}

// TestMain fails when a goroutine outlives the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
