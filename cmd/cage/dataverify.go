package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/data"
)

func newDataVerify() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify PATH...",
		Short: "Read token files and datasets, and compare them with their hashes",
		Long: `Read token files, or the files of datasets that 'cage data prepare' made, and compare
them with their sizes and hashes, with the vocabulary and with the manifest. The exit
code is 1 when a file is damaged or missing. Training verifies its files by itself.`,
		Args: atLeastOne("token file or directory of a dataset"),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var list []data.Verification
		for _, path := range args {
			found, err := data.Verify(cmd.Context(), path)
			if err != nil {
				return err
			}
			list = append(list, found...)
		}
		if err := printVerified(cmd, *asJSON, list); err != nil {
			return err
		}
		damaged := 0
		for _, v := range list {
			if v.Err != nil {
				damaged++
			}
		}
		if damaged > 0 {
			return fmt.Errorf("%d of %d files are damaged or missing", damaged, len(list))
		}
		return nil
	}
	return cmd
}

// verifiedFile is a file as printed in JSON.
type verifiedFile struct {
	Path   string `json:"path"`
	Intact bool   `json:"intact"`
	Tokens int64  `json:"tokens,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
	Error  string `json:"error,omitempty"`
}

func printVerified(cmd *cobra.Command, asJSON bool, list []data.Verification) error {
	files := []verifiedFile{}
	var rows [][]string
	for _, v := range list {
		f := verifiedFile{Path: v.Path, Intact: v.Err == nil, Tokens: v.Header.Tokens, SHA256: v.Header.SHA256}
		row := []string{v.Path, "intact", ""}
		if v.Err != nil {
			f.Error = v.Err.Error()
			row = []string{v.Path, "damaged", f.Error}
		} else if f.SHA256 != "" {
			row[2] = fmt.Sprintf("%d tokens", f.Tokens)
		}
		files, rows = append(files, f), append(rows, row)
	}
	if asJSON {
		return printJSON(cmd, files)
	}
	return table(cmd.OutOrStdout(), rows)
}
