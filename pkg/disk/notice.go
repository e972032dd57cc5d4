//go:build linux

package disk

import "encoding/binary"

// biosText is what a machine says that finds no UEFI to start a sealed disk with. Without it the screen of such a machine
// stays empty, or names the network that the firmware tried next.
const biosText = "\r\nHardtack: UEFI alone starts a disk with a sealed root, and this firmware is a BIOS. " +
	"Use UEFI, an instance type that has it, or an image with root = \"writable\".\r\n\x00"

// Where the BIOS loads the first sector to (the IBM PC's convention, which every BIOS keeps), and where the code has the
// places of the text.
const (
	loadedAt  = 0x7c00
	textPlace = 6
	textAgain = 23
)

// biosNotice is code for the first sector, of 8086 instructions: it writes biosText to the screen, then to the first serial
// line, which is what clouds show as the console, and stops.
func biosNotice() []byte {
	code := []byte{
		0x31, 0xc0, // xor ax, ax
		0x8e, 0xd8, // mov ds, ax
		0xfc,       // cld
		0xbe, 0, 0, // mov si, text
		// The BIOS's function 0x0e writes a character.
		0xac,       // screen: lodsb
		0x84, 0xc0, // test al, al
		0x74, 0x09, // jz again
		0xb4, 0x0e, // mov ah, 0x0e
		0xbb, 0x07, 0x00, // mov bx, 7
		0xcd, 0x10, // int 0x10
		0xeb, 0xf2, // jmp screen
		0xbe, 0, 0, // again: mov si, text
		// A character is sent when the last one has left; a port that is not there reads as one that is ready.
		0xba, 0xfd, 0x03, // serial: mov dx, 0x3fd
		0xec,       // wait: in al, dx
		0xa8, 0x20, // test al, 0x20
		0x74, 0xfb, // jz wait
		0xb2, 0xf8, // mov dl, 0xf8
		0xac,       // lodsb
		0x84, 0xc0, // test al, al
		0x74, 0x03, // jz stop
		0xee,       // out dx, al
		0xeb, 0xee, // jmp serial
		0xf4,       // stop: hlt
		0xeb, 0xfd, // jmp stop
	}
	text := uint16(loadedAt + len(code))
	binary.LittleEndian.PutUint16(code[textPlace:], text)
	binary.LittleEndian.PutUint16(code[textAgain:], text)
	return append(code, biosText...)
}
