"""What FastAPI and uvicorn cost when nothing is done: `python hello.py PORT`."""

import sys

import uvicorn
from fastapi import FastAPI

app = FastAPI()


@app.get("/hello")
def hello() -> dict[str, str]:
    return {"hello": "world"}


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), access_log=False, http="h11", loop="asyncio", ws="none")
