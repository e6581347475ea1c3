package workload

import (
	"encoding/csv"
	"strings"
)

// ListFlag is a flag with the values, which programs read as fields of CSV: these may have commas and quotation marks. It is left out if
// there are none.
func ListFlag(name string, values ...string) []string {
	if len(values) == 0 {
		return nil
	}
	text := &strings.Builder{}
	fields := csv.NewWriter(text)
	_ = fields.Write(values) // which a Builder takes all of
	fields.Flush()
	return []string{name + "=" + strings.TrimSuffix(text.String(), "\n")}
}
