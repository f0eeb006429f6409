package fileheader_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/fileheader"
)

var format = fileheader.Format{Magic: "CAGETEST", What: "test file", Oldest: 1, Newest: 2, TooLong: "shorten the name"}

type header struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

func TestEncodeDecode(t *testing.T) {
	want := header{"größe", 7}
	block, err := format.Encode(2, want)
	if err != nil || len(block) != fileheader.Size {
		t.Fatalf("%d bytes, %v", len(block), err)
	}
	var got header
	if version, err := format.Decode(block, fileheader.Size+10, &got); err != nil || version != 2 || got != want {
		t.Errorf("version %d, %+v, %v", version, got, err)
	}
	if _, err := format.Encode(1, header{Name: strings.Repeat("x", fileheader.Size)}); err == nil || !strings.Contains(err.Error(), "shorten the name") {
		t.Errorf("a long text: %v", err)
	}
}

// TestDecodeRefuses: each part of the block is checked.
func TestDecodeRefuses(t *testing.T) {
	whole, err := format.Encode(1, header{"a", 1})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(b []byte) []byte
		want   string
	}{
		"short":         {func(b []byte) []byte { return b[:100] }, "100 bytes long"},
		"another magic": {func(b []byte) []byte { b[0] = 'X'; return b }, "this is no test file"},
		"a new version": {func(b []byte) []byte { b[8] = 3; return b }, "format version 3, this program reads versions 1 and 2"},
		"a long text":   {func(b []byte) []byte { binary.LittleEndian.PutUint32(b[12:], 5000); return b }, "at most 4080 fit"},
		"no JSON":       {func(b []byte) []byte { b[fileheader.TextOffset] = 'X'; return b }, "header text: "},
		"another field": {func(b []byte) []byte { b[fileheader.TextOffset+2] = 'm'; return b }, "mame: unknown key"},
		"a second text": {func(b []byte) []byte {
			length := binary.LittleEndian.Uint32(b[12:])
			binary.LittleEndian.PutUint32(b[12:], length+2)
			copy(b[fileheader.TextOffset+int(length):], "{}")
			return b
		}, "something follows the end"},
		"bytes behind it": {func(b []byte) []byte { b[fileheader.Size-1] = 1; return b }, "not followed by zeros"},
	} {
		block := c.change(append([]byte(nil), whole...))
		if _, err := format.Decode(block, int64(len(block)), &header{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in it", name, err, c.want)
		}
	}
}

func TestCheckSHA256(t *testing.T) {
	if err := fileheader.CheckSHA256("sha256", strings.Repeat("0a", 32)); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", strings.Repeat("0", 63), strings.Repeat("A", 64), strings.Repeat("g", 64)} {
		if err := fileheader.CheckSHA256("sha256", bad); err == nil {
			t.Errorf("%q is a hash", bad)
		}
	}
}

// FuzzDecode: a block is refused, or says the same when it is written again.
func FuzzDecode(f *testing.F) {
	whole, err := format.Encode(1, header{"a", 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:20])
	f.Fuzz(func(t *testing.T, begin []byte) {
		block := make([]byte, fileheader.Size)
		copy(block, begin)
		var h, again header
		version, err := format.Decode(block, fileheader.Size, &h)
		if err != nil {
			return
		}
		back, err := format.Encode(version, h)
		if err != nil {
			return // escapes can make the text longer than the block
		}
		if v, err := format.Decode(back, fileheader.Size, &again); err != nil || v != version || again != h {
			t.Errorf("version %d, %+v came back as version %d, %+v, %v", version, h, v, again, err)
		}
	})
}
