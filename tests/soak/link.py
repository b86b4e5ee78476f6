# SPDX-License-Identifier: Apache-2.0
"""One connection to the server, as rude as a test wants it: HTTP/1.1 by hand over a socket, so that a client can
stop in the middle of anything, read slowly, shut one side or vanish."""

import asyncio
import json
import socket
import struct

SLOW_BUFFER_BYTES = 4096
SLOW_READ_BYTES = 256
READ_BYTES = 64 * 1024


class Gone(Exception):
    """The server closed the connection before its answer was whole."""


def request_bytes(method, path, body=b"", headers=None):
    """A request with a length; `body` may be bytes or what JSON can hold."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "host: soak", *(f"{k}: {v}" for k, v in (headers or {}).items())]
    if data or method == "POST":
        lines += ["content-type: application/json", f"content-length: {len(data)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


class Link:
    def __init__(self, reader, writer, slow):
        self._reader, self._writer, self._slow = reader, writer, slow
        self._buffer = b""
        self._left = None  # of the body: bytes by content-length, or None for chunks
        self._ended = True
        self.keep_alive = True

    @classmethod
    async def open(cls, port, slow=False):
        """`slow`: small buffers and small reads with pauses, so that the server's side fills."""
        sock = socket.socket()
        sock.setblocking(False)
        try:
            if slow:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_BUFFER_BYTES)
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
            reader, writer = await asyncio.open_connection(sock=sock, limit=SLOW_BUFFER_BYTES if slow else 1 << 20)
        except BaseException:
            sock.close()
            raise
        return cls(reader, writer, slow)

    async def send(self, data):
        self._writer.write(data)
        await self._writer.drain()

    async def _more(self):
        if self._slow:
            await asyncio.sleep(0.002)
        piece = await self._reader.read(SLOW_READ_BYTES if self._slow else READ_BYTES)
        if not piece:
            raise Gone(f"after {self._buffer[-80:]!r}")
        self._buffer += piece

    async def _until(self, mark):
        while mark not in self._buffer:
            await self._more()
        head, self._buffer = self._buffer.split(mark, 1)
        return head

    async def read_head(self):
        """(status, headers in small letters); the interim 100 is left out."""
        while True:
            lines = (await self._until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            version, status, *_ = lines[0].split(" ", 2)
            if not version.startswith("HTTP/1.") or not status.isdigit():
                raise Gone(f"no status line: {lines[0]!r}")
            if status != "100":
                break
        headers = {}
        for line in lines[1:]:
            name, value = line.split(":", 1)
            headers[name.lower()] = value.strip()
        self.keep_alive = headers.get("connection", "") != "close"
        self._left = None if "chunked" in headers.get("transfer-encoding", "") else int(headers["content-length"])
        self._ended = False
        return int(status), headers

    async def pieces(self):
        """The body's bytes as they come."""
        while not self._ended:
            if self._left is None:
                size = int((await self._until(b"\r\n")), 16)
                while len(self._buffer) < size + 2:
                    await self._more()
                piece, self._buffer = self._buffer[:size], self._buffer[size + 2:]
                self._ended = size == 0
            else:
                if not self._buffer and self._left:
                    await self._more()
                piece, self._buffer = self._buffer[:self._left], self._buffer[self._left:]
                self._left -= len(piece)
                self._ended = self._left == 0
            if piece:
                yield piece

    async def body(self):
        return b"".join([piece async for piece in self.pieces()])

    async def wait_for_end(self):
        """Reads until the server closes."""
        while await self._reader.read(READ_BYTES):
            pass

    def shut_sending(self):
        self._writer.write_eof()

    def close(self, reset=False):
        """`reset`: with an RST, as a client whose process was killed."""
        if reset:
            sock = self._writer.get_extra_info("socket")
            if sock is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort() if reset else self._writer.close()
