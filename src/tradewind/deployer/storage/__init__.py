"""Storage that inputs come from and results go to: object stores, SFTP and WebDAV servers, folders of this machine."""
