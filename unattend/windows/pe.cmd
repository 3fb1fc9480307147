@echo off
rem Runs in Windows PE beside Setup. Setup's logs there are in memory only, and lost at a restart. So this reports on
rem the first serial port: that Setup has begun, the disks, the drivers' folder, and Setup's error logs as they grow.
rem The answer file starts it with the CD's drive as its parameter. Nothing here may stop Setup. So it does not use
rem diskpart, because Setup partitions the disk with diskpart's service at this time.
setlocal enabledelayedexpansion

rem The class installer that gives the port its name does not run in Windows PE
for /f "delims=" %%k in ('reg query HKLM\SYSTEM\CurrentControlSet\Enum\ACPI\PNP0501 2^>nul') do call :name "%%k"
set tries=0
:port
(echo winlab: phase=windowsPE>COM1) 2>nul && goto begin
set /a tries+=1
if %tries% lss 60 (call :nap & goto port)
exit /b 0

:begin
(ver & reg query HKLM\SYSTEM\CurrentControlSet\Services\disk\Enum)>X:\winlab-pe.txt 2>&1
(mountvol & dir /s /b %1\$WinPEDriver$)>>X:\winlab-pe.txt 2>&1
(type X:\winlab-pe.txt)>COM1 2>nul
:look
call :grown 1 "X:\Windows\setuperr.log"
call :grown 2 "X:\Windows\Panther\setuperr.log"
call :grown 3 "X:\$WINDOWS.~BT\Sources\Panther\setuperr.log"
call :grown 4 "C:\$WINDOWS.~BT\Sources\Panther\setuperr.log"
call :nap
call :nap
goto look

rem Names the port whose key is %1. pnputil can restart a device from Windows Server 2022. Before that, its driver must
rem be loaded again, and the exit code of pnputil does not show whether that is necessary
:name
if /i "%~nx1"=="PNP0501" exit /b 0
reg add "%~1\Device Parameters" /v PortName /t REG_SZ /d COM1 /f >nul 2>&1
pnputil /restart-device "ACPI\PNP0501\%~nx1" >nul 2>&1
drvload X:\Windows\INF\msports.inf >nul 2>&1
exit /b 0

rem Waits some seconds. Without TCP/IP ping returns at once
:nap
ping -n 3 127.0.0.1 >nul 2>&1 || waitfor /t 2 winlab >nul 2>&1
exit /b 0

rem Prints the file %2 if its size has changed
:grown
if not exist "%~2" exit /b 0
if "%~z2"=="0" exit /b 0
if "%~z2"=="!size%1!" exit /b 0
set "size%1=%~z2"
(echo winlab: log=%~2& type "%~2")>COM1 2>nul
exit /b 0
