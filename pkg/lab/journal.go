package lab

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// maxField bounds a field's value, in bytes. systemd's own limit for a field in a line of an entry is 64 KiB.
const maxField = 1 << 20

// readJournal writes systemd's Journal Export Format (https://systemd.io/JOURNAL_EXPORT_FORMATS) as readable lines,
// until the stream ends or cannot be parsed.
func readJournal(from io.Reader, out io.Writer) error {
	in := bufio.NewReader(from)
	entry := map[string]string{}
	for {
		key, value, err := field(in)
		if err != nil {
			return err
		}
		if key != "" {
			entry[key] = value
			continue
		}
		if line := journalLine(entry); line != "" {
			if _, err := io.WriteString(out, line+"\n"); err != nil {
				return err
			}
		}
		clear(entry)
	}
}

// field reads one field; an empty key is the end of an entry.
func field(in *bufio.Reader) (key, value string, err error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", "", err
	}
	line = line[:len(line)-1]
	key, value, text := strings.Cut(line, "=")
	if text || line == "" {
		return key, value, nil
	}
	var size uint64
	if err := binary.Read(in, binary.LittleEndian, &size); err != nil {
		return "", "", err
	}
	if size > maxField {
		return "", "", fmt.Errorf("field %s of the journal has %d bytes", key, size)
	}
	data := make([]byte, size+1)
	if _, err := io.ReadFull(in, data); err != nil {
		return "", "", err
	}
	return key, string(data[:size]), nil
}

// journalLine is one entry as journalctl prints it, with the time in UTC.
func journalLine(e map[string]string) string {
	message, ok := e["MESSAGE"]
	if !ok {
		return ""
	}
	who := e["SYSLOG_IDENTIFIER"]
	if who == "" {
		who = e["_COMM"]
	}
	if pid := e["_PID"]; pid != "" {
		who += "[" + pid + "]"
	}
	at := ""
	if us, err := strconv.ParseInt(e["__REALTIME_TIMESTAMP"], 10, 64); err == nil {
		at = time.UnixMicro(us).UTC().Format("2006-01-02T15:04:05.000000Z") + " "
	}
	return at + who + ": " + strings.ReplaceAll(strings.TrimRight(message, "\n"), "\n", "\n    ")
}
